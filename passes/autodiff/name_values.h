// Gives forward values names that say what computes them.
#pragma once

#include "ir/joint_graph.h"

namespace aten_recompute {

// Names each forward value that an operator computes "<operator>_<n>", followed by its name in the
// source where it has one: "relu_3", "linear_7_q". n counts the occurrences of the operator, so
// names are the same in every run. Strategy "names" and recomputed copies ("relu_3_recomputed") use
// them.
void name_values(const JointGraph& joint);

}  // namespace aten_recompute
