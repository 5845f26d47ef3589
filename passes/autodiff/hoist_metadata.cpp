#include "passes/autodiff/hoist_metadata.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;

// Where nodes go that move into the forward: behind the last node that makes a value which they
// read. At the end of the forward they would keep a tensor alive for its size. A result of a kept
// branch may be undefined where the call leaves the path (runtime/branch.h), so what reads it goes
// right before its first reader, which comes after the check.
class MovedNodes {
 public:
  explicit MovedNodes(std::vector<Node*> forward)
      : forward_(std::move(forward)), follow_(forward_.size() + 1) {
    for (size_t i = 0; i < forward_.size(); ++i) {
      place_[forward_[i]] = i + 1;
      for (auto* input : forward_[i]->inputs()) {
        if (input->node()->kind() == symbols::kTapeForward)
          before_reader_.emplace(input, i);
      }
    }
  }

  bool empty() const { return place_.size() == forward_.size(); }

  void add(Node* node, const std::vector<Value*>& reads) {
    size_t last = 0;
    for (auto* value : reads) {
      const auto reader = before_reader_.find(value);
      const auto maker = place_.find(value->node());
      if (reader != before_reader_.end())
        last = std::max(last, reader->second);
      else if (maker != place_.end())
        last = std::max(last, maker->second);
    }
    place_[node] = last;
    follow_[last].push_back(node);
  }

  // Puts the forward, with these nodes in it, and then what is left of the backward at the end of
  // the block. To insert nodes one by one would take LibTorch quadratic time: it numbers all nodes
  // of the block again as soon as there is no number left between two neighbors.
  void apply(Node* backward_start, const std::vector<Node*>& backward) const {
    auto* const end = backward_start->owningBlock()->return_node();
    const auto move = [&](Node* node) { node->moveBefore(end); };
    std::for_each(follow_[0].begin(), follow_[0].end(), move);
    for (size_t i = 0; i < forward_.size(); ++i) {
      move(forward_[i]);
      std::for_each(follow_[i + 1].begin(), follow_[i + 1].end(), move);
    }
    move(backward_start);
    for (auto* node : backward) {
      if (place_.count(node) == 0)
        move(node);
    }
  }

 private:
  std::vector<Node*> forward_;
  std::vector<std::vector<Node*>> follow_;  // per place: the nodes that go behind it
  // 0: before the forward; i + 1: at node i of the forward, or behind it.
  std::unordered_map<const Node*, size_t> place_;
  std::unordered_map<const Value*, size_t> before_reader_;  // place before the first reader
};

// Returns whether the node is a read of metadata in a gradient that the method asks for.
bool is_read_in_gradient(const Node* node) {
  return node->hasAttribute(symbols::kBackwardOf) && !makes_tensors(node) &&
         !node->hasSideEffects();
}

}  // namespace

void hoist_metadata(JointGraph& joint) {
  std::unordered_set<Value*> backward_values;
  for (size_t i = joint.num_inputs; i < joint.graph->inputs().size(); ++i)
    backward_values.insert(joint.graph->inputs()[i]);
  auto forward = joint.forward_nodes();
  const auto first_read = std::stable_partition(
      forward.begin(), forward.end(), [](const Node* node) { return !is_read_in_gradient(node); });
  const std::vector<Node*> reads_in_gradients(first_read, forward.end());
  forward.erase(first_read, forward.end());
  MovedNodes moved(std::move(forward));
  for (auto* node : reads_in_gradients)
    moved.add(node, free_values(node));
  const auto backward = joint.backward_nodes();
  for (auto* node : backward) {
    const bool tensor_output = makes_tensors(node);
    const auto reads = free_values(node);
    const bool forward_only = std::none_of(reads.begin(), reads.end(), [&](Value* value) {
      return backward_values.count(value) != 0;
    });
    if (!tensor_output && forward_only)
      moved.add(node, reads);
    else
      backward_values.insert(node->outputs().begin(), node->outputs().end());
  }
  if (!moved.empty())
    moved.apply(joint.backward_start, backward);
}

}  // namespace aten_recompute
