// Inserts copies of the forward nodes that a plan runs again, in the backward or for a gradient
// that the method asks for.
#pragma once

#include <vector>

#include "ir/joint_graph.h"
#include "ir/save_plan.h"

namespace aten_recompute {

struct GraphProblem;
struct Step;

// Inserts the copies among the nodes that are served, in the order of `steps`, which puts each copy
// just before the node that needs it. `graph` is the problem that the steps belong to. The names of
// copies end in "_recomputed".
//
//   h = linear(x, w)                     h = linear(x, w)
//   y = relu(h)                          y = relu(h)
//   backward_start()          ==>        backward_start()
//   dy = sigmoid_backward(g, s)          dy = sigmoid_backward(g, s)
//   dh = threshold_backward(dy, y, 0)    h_recomputed = linear(x, w)
//                                        y_recomputed = relu(h_recomputed)
//                                        dh = threshold_backward(dy, y_recomputed, 0)
//
// Random operators run again from the random state before their first run; operators with a replay
// rule (batch norm) as that rule says. Alternatives that the plan chose replace what they are
// alternatives to, and the others are removed. differentiate() must have run, and no pass that
// merges common subexpressions may run afterward.
void splice(JointGraph& joint, const GraphProblem& graph, const std::vector<Step>& steps);

// Does this for a set of values to keep: each other value that the backward needs is recomputed
// once, where it is first needed.
void splice(JointGraph& joint, const SavePlan& plan);

}  // namespace aten_recompute
