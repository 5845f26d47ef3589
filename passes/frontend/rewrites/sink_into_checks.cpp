#include "passes/frontend/rewrites/sink_into_checks.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <vector>

#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// Returns the block of a check that contains `node`, where `outside` contains the check; nullptr if
// there is none.
Block* block_of_check(const Node* node, const Block* outside) {
  auto* block = const_cast<Node*>(node)->owningBlock();
  while (block != outside) {
    auto* owner = block->owningNode();
    if (owner == nullptr || owner->kind() != prim::If || !owner->outputs().empty())
      return nullptr;
    if (owner->owningBlock() == outside)
      return block;
    block = owner->owningBlock();
  }
  return nullptr;
}

// Returns the blocks of checks that read the value; none if something else reads it, too.
std::vector<Block*> reading_blocks(Value* value) {
  std::vector<Block*> blocks;
  for (const auto& use : value->uses()) {
    auto* block = block_of_check(use.user, value->node()->owningBlock());
    if (block == nullptr)
      return {};
    if (std::find(blocks.begin(), blocks.end(), block) == blocks.end())
      blocks.push_back(block);
  }
  return blocks;
}

bool is_inside(const Node* node, const Block* block) {
  for (auto* inner = const_cast<Node*>(node)->owningBlock(); inner != nullptr;
       inner = inner->owningNode() == nullptr ? nullptr : inner->owningNode()->owningBlock()) {
    if (inner == block)
      return true;
  }
  return false;
}

void sink(Node* node, const std::vector<Block*>& blocks) {
  auto* value = node->output();
  for (auto* block : blocks) {
    auto* copy = node->owningGraph()->createClone(node, [](Value* input) { return input; });
    block->prependNode(copy);
    const auto uses = value->uses();
    for (const auto& use : uses) {
      if (is_inside(use.user, block))
        use.user->replaceInput(use.offset, copy->output());
    }
  }
  node->destroy();
}

}  // namespace

void sink_into_checks(const std::shared_ptr<torch::jit::Graph>& graph) {
  std::vector<Node*> tuples;
  for_each_node(graph->block(), [&](Node* node) {
    if (node->kind() == prim::TupleConstruct && !contains_tensor(*node->output()->type()))
      tuples.push_back(node);
  });
  for (auto* node : tuples) {
    if (const auto blocks = reading_blocks(node->output()); !blocks.empty())
      sink(node, blocks);
  }
}

}  // namespace aten_recompute
