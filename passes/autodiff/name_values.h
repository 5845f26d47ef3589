// Names that say what computed a value.
#pragma once

#include "ir/joint_graph.h"

namespace aten_recompute {

// Calls each forward value that an operator computes "<operator>_<n>", with the name that it has in
// the source behind it: "relu_3", "linear_7_q". Numbers count the operator's occurrences, so names
// are the same in every run. Strategy "names" and recomputed copies ("relu_3_recomputed") use them.
void name_values(const JointGraph& joint);

}  // namespace aten_recompute
