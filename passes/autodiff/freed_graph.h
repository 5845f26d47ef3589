// What torch.autograd.grad() without retain_graph frees: a node of eager PyTorch's graph loses the
// tensors that it has saved, and a later gradient through it raises an exception.
#pragma once

#include <c10/util/ArrayRef.h>

#include <unordered_set>
#include <vector>

#include "ir/joint_graph.h"

namespace torch::jit {
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// Tells the gradients that a backward has computed from values of the forward, and marks forward
// nodes that eager frees with symbols::kFreed.
class FreedGraph {
 public:
  // Adds a gradient that the backward starts with.
  void add_gradient(const torch::jit::Value* gradient) { gradients_.insert(gradient); }

  // Adds the results of the nodes from `first` to before `end`, which compute gradients.
  void add_gradients(const torch::jit::Node* first, const torch::jit::Node* end);

  // Marks `nodes` of the forward if those from `first` to before `end`, which compute their
  // gradients, read a tensor of the forward: eager has saved it for them. So are nodes of a write
  // to a view, whose node in eager's graph runs only once.
  void mark(const std::vector<torch::jit::Node*>& nodes, const torch::jit::Node* first,
            const torch::jit::Node* end) const;

 private:
  std::unordered_set<const torch::jit::Value*> gradients_;
};

// Returns the outputs whose gradient would pass through a freed node on its way to an input that
// requires grad (`requires_grad[i]`: input i does), or to a leaf that the graph makes.
std::vector<FreedOutput> find_freed_outputs(const torch::jit::Graph& graph,
                                            const std::vector<bool>& requires_grad);

// Returns whether a gradient of one of `outputs` would pass through a freed node before `end` on
// its way to one of `targets`. There, eager PyTorch raises an exception.
bool passes_freed_node(const torch::jit::Graph& graph,
                       const std::vector<torch::jit::Value*>& targets,
                       c10::ArrayRef<torch::jit::Value*> outputs, const torch::jit::Node* end);

}  // namespace aten_recompute
