// The backward of each forward node, prepared in the order of the forward and inserted in reverse.
#pragma once

#include <functional>
#include <string>
#include <unordered_set>
#include <vector>

#include "ir/joint_graph.h"
#include "passes/autodiff/gradient_sums.h"

namespace aten_recompute {

// What gradients are inserted for.
enum class Purpose {
  kBackward,       // the backward of a region, which nothing differentiates again
  kGradient,       // a gradient that the method asks for: part of the forward
  kGradientAgain,  // the same with create_graph: its operators are differentiated again
};

// Says of which operator's gradients a node of an inner gradient is part.
inline const c10::Symbol kGradientsOf = c10::Symbol::attr("gradients_of");

// Inserts the backward of one forward node at the graph's insert point.
struct BackwardStep {
  // For an inner gradient: the node, or those that have replaced it. Empty for a backward.
  std::vector<torch::jit::Node*> nodes;
  std::function<void()> insert;
  std::function<void(torch::jit::Node*)> mark;  // says on an inserted node where it comes from
  int64_t gradients_of = -1;                    // kGradientsOf of the node, if it has that
  bool is_sum = false;                          // the node adds gradients up
};

// What is noted of the nodes that have been prepared.
struct PreparedNodes {
  DifferentiatedOperators operators;
  // Value::unique() of the values inside a rule's forward that a gradient passes through.
  std::unordered_set<size_t> gradient_path;
};

// Prepares each of the nodes that a gradient passes through, and marks in `sums` which of their
// outputs require grad. Composed operators are replaced by their parts. For a backward, nodes are
// also replaced by the forward of their rule, or by a tape; for an inner gradient they stay as they
// are, so that they can be differentiated again, except those that draw random numbers: the
// gradient needs the numbers that the forward has drawn. `frees_graph`: the gradient that the
// method asks for frees the graph behind it, in stretches that run in slices as well; the caller
// marks the nodes of `nodes` (passes/autodiff/freed_graph.h). `sums` has to outlive the result.
std::vector<BackwardStep> prepare_forward(const std::vector<torch::jit::Node*>& nodes,
                                          Purpose purpose, GradientSums& sums,
                                          PreparedNodes& prepared, bool frees_graph = false);

// Inserts the backward of each step at the graph's insert point, the last step's first, and marks
// what it inserts. Calls `inserted` with each step that inserted something, and its first node.
void insert_backward(
    torch::jit::Graph& graph, const std::vector<BackwardStep>& steps,
    const std::function<void(const BackwardStep&, torch::jit::Node*)>& inserted = nullptr);

// Removes kGradientsOf from all nodes.
void remove_gradients_of(torch::jit::Block* block);

}  // namespace aten_recompute
