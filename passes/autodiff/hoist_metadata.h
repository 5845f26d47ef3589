// Reads of sizes and dtypes move from the backward into the forward.
#pragma once

#include "ir/joint_graph.h"

namespace aten_recompute {

// Moves every backward node that has no tensor output and depends on forward values alone into the
// forward, right after what it reads: the backward then captures an int list, not the tensor whose
// size it is, and the forward does not hold the tensor for it either. Only for a joint graph
// without in-place operators in the backward.
void hoist_metadata(JointGraph& joint);

}  // namespace aten_recompute
