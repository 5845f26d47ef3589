#include "passes/frontend/path/returned_leaves.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <unordered_set>
#include <vector>

#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "runtime/returned_leaf.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Value;
namespace aten = c10::aten;

// Returns whether the node copies a tensor, or makes one of constants, which costs what a region
// cannot save.
bool copies_or_fills(const Node* node) {
  static const std::array<c10::Symbol, 14> kinds{
      aten::arange,    aten::clone,     aten::detach_copy, aten::eye,       aten::full,
      aten::full_like, aten::linspace,  aten::new_full,    aten::new_ones,  aten::new_zeros,
      aten::ones,      aten::ones_like, aten::zeros,       aten::zeros_like};
  return std::find(kinds.begin(), kinds.end(), node->kind()) != kinds.end();
}

bool may_run_before_regions(const Node* node) {
  if (node->kind() == c10::prim::Constant)
    return true;
  if (!node->blocks().empty() || node->kind() == symbols::kRequireGrad || has_effect(node) ||
      may_be_random(node) || mutates_an_argument(node) || asks_autograd(node) ||
      runs_autograd(node))
    return false;
  return !makes_tensors(node) || is_pure_view(node) || copies_or_fills(node);
}

// Returns the tensor that a leaf of the region was before, if the node detaches it, and otherwise
// the input itself.
Value* without_leaf(const Node* node, Value* input) {
  const bool is_detached_leaf =
      node->kind() == aten::detach && input->node()->kind() == symbols::kRequireGrad;
  return is_detached_leaf ? input->node()->input(0) : input;
}

// Collects the nodes behind `start` that make the value, each after those that it reads.
class Makers {
 public:
  explicit Makers(const Node* start) : start_(start) {}

  bool add(Value* value) {
    auto* node = value->node();
    if (node->kind() == c10::prim::Param || node->isBefore(start_) || !seen_.insert(node).second)
      return true;
    const auto inputs = node->inputs();
    if (!may_run_before_regions(node) ||
        !std::all_of(inputs.begin(), inputs.end(),
                     [&](Value* input) { return add(without_leaf(node, input)); }))
      return false;
    nodes_.push_back(node);
    return true;
  }

  const std::vector<Node*>& nodes() const { return nodes_; }

 private:
  const Node* start_;
  std::unordered_set<const Node*> seen_;
  std::vector<Node*> nodes_;
};

// Returns whether a node writes to the value or to a view of it.
bool is_written(const Value* value) {
  const auto& uses = value->uses();
  return std::any_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
    const auto outputs = use.user->outputs();
    return writes_to(use.user, use.offset) ||
           (may_alias_an_argument(use.user) &&
            std::any_of(outputs.begin(), outputs.end(), is_written));
  });
}

bool makes_container(const Node* node) {
  const auto outputs = node->outputs();
  return outputs.size() == 1 && !is_tensor_type(*outputs[0]->type()) &&
         contains_tensor(*outputs[0]->type());
}

// Collects the containers that hold the value and that the path returns, at any depth, each after
// those that it holds. Returns false where something else reads one of them.
bool collect_returned_containers(const Value* value, std::vector<Node*>& containers) {
  for (const auto& use : value->uses()) {
    auto* user = use.user;
    if (!makes_container(user) ||
        std::find(containers.begin(), containers.end(), user) != containers.end())
      continue;
    const auto& uses = user->output()->uses();
    const auto is_returned = [](const torch::jit::Use& each) {
      return each.user->kind() == c10::prim::Return || makes_container(each.user);
    };
    const auto num_returned = std::count_if(uses.begin(), uses.end(), is_returned);
    if (num_returned == 0)
      continue;  // an operator's operands
    if (num_returned != static_cast<std::ptrdiff_t>(uses.size()))
      return false;
    containers.push_back(user);
    if (!collect_returned_containers(user->output(), containers))
      return false;
  }
  return true;
}

}  // namespace

bool make_leaf_before_regions(Value* leaf, Node* start) {
  auto* mark = leaf->node();
  auto* marked = mark->input(0);
  Makers makers(start);
  if (marked->uses().size() != 1 || !makers.add(marked) || !makes_tensors(marked->node()))
    return false;
  for (const auto* node : makers.nodes()) {
    const auto inputs = node->inputs();
    if (std::any_of(inputs.begin(), inputs.end(), is_written))
      return false;  // it would read what is written later
  }
  for (auto* node : makers.nodes()) {
    for (size_t i = 0; i < node->inputs().size(); ++i)
      node->replaceInput(i, without_leaf(node, node->input(i)));
    node->moveBefore(start);
    if (makes_tensors(node) && node->kind() != c10::prim::Constant)
      node->i_(symbols::kBeforeRegions, 1);
  }
  const torch::jit::WithInsertPoint guard(start);
  auto* graph = mark->owningGraph();
  auto* yes = graph->insertConstant(true);
  auto* made = graph->insertNode(graph->create(aten::requires_grad_, {marked, yes}, 1));
  made->i_(symbols::kBeforeRegions, 1);
  made->copyMetadata(mark);
  made->output()->copyMetadata(leaf);
  leaf->replaceAllUsesWith(made->output());
  mark->destroy();
  return true;
}

bool return_leaf_of_region(Value* leaf, Node* start, int64_t number) {
  std::vector<Node*> containers;
  if (!collect_returned_containers(leaf, containers))
    return false;
  auto* graph = leaf->owningGraph();
  auto* end = graph->return_node();
  std::vector<torch::jit::Use> uses;
  for (const auto& use : leaf->uses()) {
    if (use.user == end ||
        std::find(containers.begin(), containers.end(), use.user) != containers.end())
      uses.push_back(use);
  }
  if (uses.empty())
    return false;
  Value* place = nullptr;
  {
    const torch::jit::WithInsertPoint guard(start);
    place = graph->insert(kLeafPlace, {number});
    place->node()->i_(symbols::kBeforeRegions, 1);
  }
  leaf->node()->addInput(place);
  const torch::jit::WithInsertPoint guard(end);
  // The region's output leads nowhere: the gradient that the caller asks for is that of the leaf.
  auto* content = graph->insert(c10::aten::detach, {leaf});
  auto* returned = graph->insert(kReturnLeaf, {content, place});
  content->node()->copyMetadata(leaf->node());
  returned->node()->copyMetadata(leaf->node());
  for (const auto& use : uses)
    use.user->replaceInput(use.offset, returned);
  std::sort(containers.begin(), containers.end(),
            [](const Node* a, const Node* b) { return a->isBefore(b); });
  for (auto* container : containers)
    container->moveBefore(end);
  return true;
}

}  // namespace aten_recompute
