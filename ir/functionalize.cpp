#include "ir/functionalize.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <unordered_set>
#include <vector>

#include "ir/node_place.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"

namespace aten_recompute {
namespace {

using torch::jit::AliasDb;
using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

c10::Symbol functional_symbol(const Node* node) {
  std::string name = node->kind().toQualString();
  // Separate operators compute what these do.
  if (has_fact(node, Fact::kDiffersInPlace))
    return c10::Symbol::fromQualString("aten_recompute::" + name.substr(6) + "in_place");
  name.pop_back();
  return c10::Symbol::fromQualString(name);
}

bool has_functional_twin(Node* node) {
  auto& graph = *node->owningGraph();
  auto* twin = graph.create(functional_symbol(node), node->inputs(), 1);
  twin->insertBefore(node);
  const bool exists = twin->maybeSchema() != nullptr && !twin->schema().is_mutable();
  twin->destroy();
  return exists;
}

// Collects all values that may be, or contain, an alias of a tensor, and all in-place operators.
void collect(Block* block, std::vector<Value*>& values, std::vector<Node*>& in_place) {
  const auto add = [&](at::ArrayRef<Value*> added) {
    std::copy_if(added.begin(), added.end(), std::back_inserter(values),
                 [](const Value* value) { return contains_tensor(*value->type()); });
  };
  add(block->inputs());
  for (auto* node : block->nodes()) {
    add(node->outputs());
    if (is_in_place(node))
      in_place.push_back(node);
    for (auto* inner : node->blocks())
      collect(inner, values, in_place);
  }
}

// Returns the value whose memory a chain of in-place operators writes to.
Value* origin_of(Value* value) {
  while (is_in_place(value->node()))
    value = value->node()->input(0);
  return value;
}

// Returns whether some node may put a tensor into a container or an object that exists already.
bool changes_containers(Block* block) {
  bool changes = false;
  for_each_node(block, [&](const Node* node) {
    changes = changes || node->kind() == prim::SetAttr ||
              (mutates_an_argument(node) && !is_tensor_type(*node->input(0)->type()));
  });
  return changes;
}

// Returns whether the value cannot be, or contain, the origin because it is older. An alias
// analysis that ignores the order takes a module for a container of whatever was put into some
// list.
bool is_too_old(const Value* value, const Value* origin, bool containers_change) {
  return value->node()->isBefore(origin->node()) &&
         (!containers_change || value->type()->kind() == c10::TypeKind::TensorType);
}

bool can_functionalize(Value* origin, const std::vector<Node*>& writers,
                       const std::vector<Value*>& values, const AliasDb& aliases,
                       bool containers_change) {
  if (!makes_new_tensor(origin))
    return false;
  std::unordered_set<Value*> family{origin};
  for (auto* writer : writers) {
    if (writer->owningBlock() != origin->node()->owningBlock())
      return false;
    if (!has_functional_twin(writer))
      return false;
    family.insert(writer->output());
  }
  // An alias made after the last write becomes an alias of the new value.
  const auto* last = writers.back();
  return std::none_of(values.begin(), values.end(), [&](Value* value) {
    return family.count(value) == 0 && !value->node()->isAfter(last) &&
           !is_too_old(value, origin, containers_change) && aliases.mayContainAlias(value, origin);
  });
}

// Returns whether autocast casts operands of the operator.
bool has_autocast_kernel(const Node* node) {
  const auto& schema = node->schema();
  const auto op = c10::Dispatcher::singleton().findSchema({schema.name(), schema.overload_name()});
  return op && (op->hasKernelForDispatchKey(c10::DispatchKey::AutocastCPU) ||
                op->hasKernelForDispatchKey(c10::DispatchKey::AutocastCUDA));
}

// Inserts the functional form before the node. Returns its result.
Value* insert_functional(Node* node) {
  auto& graph = *node->owningGraph();
  const torch::jit::WithInsertPoint guard(node);
  auto* target = node->input(0);
  bool other_tensor = false;
  for (size_t i = 1; i < node->inputs().size(); ++i)
    other_tensor = other_tensor || is_tensor_type(*node->input(i)->type());
  auto* dtype = other_tensor ? graph.insert(prim::dtype, {target}) : nullptr;
  auto* twin = graph.insertNode(graph.create(functional_symbol(node), node->inputs(), 1));
  twin->copyMetadata(node);
  twin->copyAttributes(*node);
  if (has_autocast_kernel(twin) && !has_autocast_kernel(node))
    twin->i_(kUncastInPlace, 1);
  auto* result = twin->output();
  if (dtype != nullptr) {
    result = graph.insert(c10::aten::to, {result, dtype});
    twin->i_(kKeepsType, 1);
    result->node()->i_(kKeepsType, 1);
  }
  copy_place(node, result->node());
  if (node->output()->hasDebugName()) {
    const auto name = node->output()->debugNameBase();
    node->output()->setDebugName("");  // frees the name
    result->setDebugName(name);
  }
  return result;
}

// Returns the node that enters the block of torch.no_grad(), or its like, that `node` stands in;
// nullptr if it stands in none.
const Node* entered_before(const Node* node) {
  for (; node != nullptr; node = node->owningBlock()->owningNode()) {
    int num_left = 0;
    const auto* begin = node->owningBlock()->param_node();
    for (const auto* each = node == begin ? begin : node->prev(); each != begin;
         each = each->prev()) {
      if (each->kind() == prim::Exit)
        ++num_left;
      else if (each->kind() == prim::Enter && num_left-- == 0)
        return each;
    }
  }
  return nullptr;
}

// Returns whether the writes stand in the same block of torch.no_grad(), if in any, as what made
// the value. A write under no_grad() leaves the history of what was made outside as it is, which
// the functional form would not have.
bool are_in_block_of(const Value* origin, const std::vector<Node*>& writes) {
  return std::all_of(writes.begin(), writes.end(), [&](const Node* write) {
    return entered_before(write) == entered_before(origin->node());
  });
}

// Returns whether the node is a functional form that differs from the in-place operator.
bool differs_from_in_place(const Node* node) {
  return node->hasAttribute(kUncastInPlace) ||
         (node->hasAttribute(kKeepsType) && node->kind() != c10::aten::to);
}

// Replaces the functional forms that `chosen` accepts by in-place operators on copies.
void restore_chosen(Graph& graph, bool (*chosen)(const Node*)) {
  std::vector<Node*> functional;
  for_each_node(graph.block(), [&](Node* node) {
    if (chosen(node))
      functional.push_back(node);
  });
  for (auto* node : functional) {
    const torch::jit::WithInsertPoint guard(node);
    auto* target = graph.insert(c10::aten::clone, {node->input(0)});
    const std::string name = node->kind().toQualString();
    auto* written =
        graph.insertNode(graph.create(c10::Symbol::fromQualString(name + "_"), node->inputs(), 1));
    written->replaceInput(0, target);
    written->copyMetadata(node);
    copy_place(node, written);
    node->output()->replaceAllUsesWith(written->output());
    node->destroy();
  }
}

void replace(Node* node) {
  auto* target = node->input(0);
  auto* result = insert_functional(node);
  node->output()->replaceAllUsesWith(result);
  target->replaceAllUsesAfterNodeWith(node, result);
  node->destroy();
}

}  // namespace

bool is_in_place(const Node* node) {
  if (!node->kind().is_aten() || node->outputs().size() != 1)
    return false;
  const std::string name = node->kind().toUnqualString();
  if (name.size() < 2 || name.back() != '_' || name[name.size() - 2] == '_')
    return false;
  return writes_to(node, 0);
}

Value* make_functional(Node* node) {
  if (!has_functional_twin(node))
    return nullptr;
  auto* result = insert_functional(node);
  node->destroy();
  return result;
}

void functionalize(const std::shared_ptr<Graph>& graph) {
  std::vector<Value*> values;
  std::vector<Node*> in_place;
  collect(graph->block(), values, in_place);
  if (in_place.empty())
    return;
  const AliasDb aliases(graph);
  std::map<size_t, std::vector<Node*>> writers;  // key: the origin's unique()
  std::map<size_t, Value*> origins;
  for (auto* node : in_place) {
    auto* origin = origin_of(node->input(0));
    writers[origin->unique()].push_back(node);
    origins[origin->unique()] = origin;
  }
  const bool containers_change = changes_containers(graph->block());
  bool enters_blocks = false;
  for_each_node(graph->block(), [&](const Node* node) {
    enters_blocks = enters_blocks || node->kind() == prim::Enter;
  });
  std::vector<Node*> chosen;
  for (const auto& [unique, nodes] : writers) {
    if ((!enters_blocks || are_in_block_of(origins.at(unique), nodes)) &&
        can_functionalize(origins.at(unique), nodes, values, aliases, containers_change))
      chosen.insert(chosen.end(), nodes.begin(), nodes.end());
  }
  for (auto* node : chosen)
    replace(node);
}

void restore_in_place(Graph& graph) {
  restore_chosen(graph, &differs_from_in_place);
}

std::shared_ptr<torch::jit::Graph> for_autograd(torch::jit::Graph& given) {
  auto graph = given.copy();
  restore_chosen(*graph, [](const Node* node) {
    return node->kind() == c10::aten::zero || node->kind() == c10::aten::copy ||
           differs_from_in_place(node);
  });
  return graph;
}

}  // namespace aten_recompute
