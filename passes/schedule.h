// Places recomputed nodes as late as they can stand.
#pragma once

#include "passes/joint_graph.h"

namespace aten_recompute {

// Moves each node that splice() added to just before its first use, so that nothing is held longer
// than it is needed. Nodes of the backward proper keep their order. Needs: splice() has run;
// nothing may reorder the backward afterwards.
void schedule(JointGraph& joint);

}  // namespace aten_recompute
