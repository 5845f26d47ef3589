#include "passes/frontend/rewrites/functionalize_lists.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace aten = c10::aten;
namespace prim = c10::prim;

const c10::Symbol kReverse = c10::Symbol::fromQualString("aten::reverse");
const c10::Symbol kClear = c10::Symbol::fromQualString("aten::clear");
const c10::Symbol kExtend = c10::Symbol::fromQualString("aten::extend");
const c10::Symbol kDelete = c10::Symbol::fromQualString("aten::Delete");

// The effect of a change of a list.
struct Change {
  std::vector<Value*> elements;  // of the list after the change
  Value* taken = nullptr;        // the element that pop() returns
};

bool can_hold_a_list(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::ListType || type.kind() == c10::TypeKind::AnyType ||
      type.kind() == c10::TypeKind::AnyListType || type.kind() == c10::TypeKind::ClassType) {
    return true;
  }
  const auto inner = type.containedTypes();
  return std::any_of(inner.begin(), inner.end(),
                     [](const auto& each) { return can_hold_a_list(*each); });
}

// Returns whether a user of a list reads it, and neither changes it nor passes it on.
bool only_reads(const Node* user) {
  if (user->kind() == prim::ListUnpack)
    return true;
  const auto* schema = user->maybeSchema();
  return user->kind().is_aten() && schema != nullptr && !schema->is_mutable() &&
         user->blocks().empty() &&
         std::none_of(user->outputs().begin(), user->outputs().end(),
                      [](const Value* output) { return can_hold_a_list(*output->type()); });
}

// Returns whether the list is made in the block of `change`, and only read before that node.
bool is_only_read_before(Value* list, Node* change) {
  if (list->node()->kind() != prim::ListConstruct ||
      list->node()->owningBlock() != change->owningBlock()) {
    return false;
  }
  return std::all_of(list->uses().begin(), list->uses().end(), [&](const torch::jit::Use& use) {
    return use.user == change || use.user->isAfter(change) || only_reads(use.user);
  });
}

// Returns the constant index in input `input`, counted from the front of a list of this size;
// nullopt if it is not constant.
std::optional<int64_t> constant_index(const Node* change, size_t input, size_t size) {
  const auto given = torch::jit::constant_as<int64_t>(change->input(input));
  if (!given)
    return std::nullopt;
  return *given < 0 ? *given + static_cast<int64_t>(size) : *given;
}

// Returns the index of the element that is changed; nullopt if it is not constant or out of range,
// where the operator raises.
std::optional<size_t> changed_index(const Node* change, const std::vector<Value*>& elements) {
  const auto at = constant_index(change, 1, elements.size());
  if (!at || *at < 0 || *at >= static_cast<int64_t>(elements.size()))
    return std::nullopt;
  return static_cast<size_t>(*at);
}

// Returns the effect of a change; nullopt if the node is no change, or cannot be replaced.
std::optional<Change> changed_elements(Node* change) {
  const auto before = change->input(0)->node()->inputs();
  Change result{{before.begin(), before.end()}};
  auto& elements = result.elements;
  if (change->kind() == aten::append) {
    elements.push_back(change->input(1));
  } else if (change->kind() == kExtend || change->kind() == aten::add_) {
    auto* other = change->input(1);
    if (other == change->input(0) || !is_only_read_before(other, change))
      return std::nullopt;
    const auto more = other->node()->inputs();
    elements.insert(elements.end(), more.begin(), more.end());
  } else if (change->kind() == aten::insert) {
    const auto at = constant_index(change, 1, elements.size());
    if (!at)
      return std::nullopt;
    // As in Python, an index beyond an end means that end.
    const auto place = std::clamp<int64_t>(*at, 0, static_cast<int64_t>(elements.size()));
    elements.insert(elements.begin() + place, change->input(2));
  } else if (change->kind() == aten::_set_item) {
    const auto at = changed_index(change, elements);
    if (!at)
      return std::nullopt;
    elements[*at] = change->input(2);
  } else if (change->kind() == aten::pop || change->kind() == kDelete) {
    const auto at = changed_index(change, elements);
    if (!at)
      return std::nullopt;
    result.taken = elements[*at];
    elements.erase(elements.begin() + static_cast<std::ptrdiff_t>(*at));
  } else if (change->kind() == kReverse) {
    std::reverse(elements.begin(), elements.end());
  } else if (change->kind() == kClear) {
    elements.clear();
  } else {
    return std::nullopt;
  }
  return result;
}

void replace(Node* change, const Change& result) {
  auto& graph = *change->owningGraph();
  auto* list = change->input(0);
  const auto element_type = list->type()->expectRef<c10::ListType>().getElementType();
  auto* made = graph.createList(element_type, result.elements)->insertBefore(change);
  made->copyMetadata(change);
  made->output()->setType(list->type());
  for (auto* output : change->outputs())
    output->replaceAllUsesWith(change->kind() == aten::pop ? result.taken : made->output());
  list->replaceAllUsesAfterNodeWith(change, made->output());
  change->destroy();
}

void functionalize_in(Block* block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    Node* node = *it++;
    for (auto* inner : node->blocks())
      functionalize_in(inner);
    const auto* schema = node->maybeSchema();
    if (schema == nullptr || !schema->is_mutable() || node->inputs().empty() ||
        node->input(0)->type()->kind() != c10::TypeKind::ListType ||
        !is_only_read_before(node->input(0), node)) {
      continue;
    }
    if (const auto result = changed_elements(node))
      replace(node, *result);
  }
}

}  // namespace

void functionalize_lists(const std::shared_ptr<Graph>& graph) {
  functionalize_in(graph->block());
}

bool reads_own_lists(torch::jit::Graph& graph) {
  bool found = false;
  for_each_node(graph.block(), [&](const torch::jit::Node* node) {
    found = found || (node->kind() == c10::aten::__getitem__ &&
                      node->input(0)->node()->kind() == c10::prim::ListConstruct &&
                      contains_tensor(*node->output()->type()));
  });
  return found;
}

}  // namespace aten_recompute
