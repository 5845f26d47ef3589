// Tells where each value of a method is read for the last time.
#pragma once

#include <unordered_map>
#include <vector>

namespace torch::jit {
struct Block;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

class Lifetimes {
 public:
  // Adds the nodes of a block, and of the blocks in it.
  void add(torch::jit::Block* block);

  // Returns the values of the node's own block that nothing reads after it. Outputs of the block
  // are none of them.
  const std::vector<torch::jit::Value*>& dead_after(torch::jit::Node* node) const;

 private:
  std::unordered_map<torch::jit::Node*, std::vector<torch::jit::Value*>> dead_;
};

}  // namespace aten_recompute
