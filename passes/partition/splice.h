// Inserts the copies of forward nodes that a plan runs again in the backward.
#pragma once

#include <vector>

#include "ir/joint_graph.h"
#include "ir/save_plan.h"

namespace aten_recompute {

struct GraphProblem;
struct Step;

// Carries a schedule out: copies of forward nodes between the backward's own, in the order of the
// steps, so that each copy stands just before what it is made for. Values keep their names with
// "_recomputed" appended.
//
//   h = linear(x, w)                     h = linear(x, w)
//   y = relu(h)                          y = relu(h)
//   backward_start()          ==>        backward_start()
//   dy = sigmoid_backward(g, s)          dy = sigmoid_backward(g, s)
//   dh = threshold_backward(dy, y, 0)    h_recomputed = linear(x, w)
//                                        y_recomputed = relu(h_recomputed)
//                                        dh = threshold_backward(dy, y_recomputed, 0)
//
// Random operators run again from the random state before them; operators with a replay rule
// (batch norm) as that rule says. Needs: differentiate() has run. No pass that merges common
// subexpressions may run after it.
void splice(JointGraph& joint, const GraphProblem& graph, const std::vector<Step>& steps);

// The same for a set of values to keep.
void splice(JointGraph& joint, const SavePlan& plan);

}  // namespace aten_recompute
