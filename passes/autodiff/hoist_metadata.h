// Moves reads of sizes and dtypes from the backward into the forward.
#pragma once

#include "ir/joint_graph.h"

namespace aten_recompute {

// Moves each backward node that has no tensor output and depends on forward values alone into the
// forward, right after what it reads. The backward then captures an int list instead of the tensor
// whose size it is, and the forward need not keep the tensor for it either. The backward must not
// contain in-place operators.
void hoist_metadata(JointGraph& joint);

}  // namespace aten_recompute
