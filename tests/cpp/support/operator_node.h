// Nodes of single operators, for tests of what is known about an operator.
#pragma once

#include <memory>
#include <string>

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace aten_recompute::test {

// A node of one overload, in a graph of its own whose inputs are the operator's arguments.
class OperatorNode {
 public:
  // `name` is "aten::add.Tensor", or "aten::relu" for the overload without a name. Throws
  // std::out_of_range if there is no such operator, or if another overload comes first for
  // arguments of these types.
  explicit OperatorNode(const std::string& name);

  torch::jit::Node* get() const { return node_; }
  torch::jit::Node* operator->() const { return node_; }
  operator torch::jit::Node*() const { return node_; }

 private:
  std::shared_ptr<torch::jit::Graph> graph_;
  torch::jit::Node* node_ = nullptr;
};

}  // namespace aten_recompute::test
