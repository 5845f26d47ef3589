// Turns "what is saved" into a forward and a backward graph.
#pragma once

#include <cstddef>
#include <unordered_set>
#include <vector>

#include "passes/joint_graph.h"

namespace torch::jit {
struct Gradient;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

struct GraphProblem;
struct Step;

// Forward values to keep for the backward, by Value::unique() in the joint graph. Values that are
// not tensors are always kept, region inputs are there anyway; everything else that the backward
// needs and that is not listed is computed again, from what is kept.
struct SavePlan {
  std::unordered_set<size_t> saved;
};

// Why a forward node is not computed again in the backward.
enum class RecomputeVeto { kNone, kMutates, kControlFlow, kRule, kReadsWritten };
RecomputeVeto recompute_veto(const torch::jit::Node* node);
const char* to_string(RecomputeVeto veto);

// Running the node again needs the generator's state from before its first run.
bool draws_random_numbers(const torch::jit::Node* node);

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

// Forward values that the backward reads directly, tensors and tapes only, in forward order.
std::vector<torch::jit::Value*> captured_values(const JointGraph& joint);

// What is saved when nothing is computed again: captured values, views replaced by what they view.
SavePlan save_everything(const JointGraph& joint);

// Takes the joint graph apart: upstream's own description of a differentiated graph. The joint
// graph is not changed. Outputs of `f` are the region's outputs, then the captured values.
torch::jit::Gradient extract(const JointGraph& joint);

}  // namespace aten_recompute
