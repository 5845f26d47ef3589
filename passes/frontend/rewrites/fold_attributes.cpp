#include "passes/frontend/rewrites/fold_attributes.h"

#include <torch/csrc/jit/ir/ir.h>

#include <bit>
#include <cstdint>
#include <optional>
#include <unordered_set>

#include "ir/attribute_path.h"
#include "ir/node_traits.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

using Object = c10::intrusive_ptr<c10::ivalue::Object>;

std::vector<Node*> attribute_reads(Graph& graph) {
  std::vector<Node*> reads;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() == prim::GetAttr)
      reads.push_back(node);
  });
  return reads;
}

bool is_foldable(const c10::IValue& value) {
  return value.isBool() || value.isInt() || value.isDouble() || value.isString() || value.isNone();
}

}  // namespace

bool is_number(const FoldedAttribute& attribute) {
  const bool is_of_value = !attribute.not_none && attribute.rank < 0 &&
                           attribute.structure == nullptr && !attribute.other_object;
  return is_of_value && (attribute.value.isInt() || attribute.value.isDouble());
}

std::unordered_set<std::string> set_attributes(Graph& graph) {
  std::unordered_set<std::string> names;
  for_each_node(graph.block(), [&](const Node* node) {
    if (node->kind() == prim::SetAttr)
      names.insert(node->s(c10::attr::name));
  });
  return names;
}

std::vector<FoldedAttribute> fold_attributes(const std::shared_ptr<Graph>& graph,
                                             const Object& root, const AttributePaths& changing) {
  const auto set_names = set_attributes(*graph);
  std::vector<FoldedAttribute> folded;
  for (auto* node : attribute_reads(*graph)) {
    if (set_names.count(node->s(c10::attr::name)) != 0)
      continue;
    auto path = path_from_root(node->output(), *graph);
    if (!path || changing.count(*path) != 0)
      continue;
    const auto value = read_path(root, *path);
    if (!value)
      continue;
    const torch::jit::WithInsertPoint guard(node->next());
    if (is_foldable(*value)) {
      auto* constant = graph->insertConstant(*value);
      node->output()->replaceAllUsesWith(constant);
      folded.push_back({std::move(*path), *value, false});
    } else if (auto optional = node->output()->type()->cast<c10::OptionalType>()) {
      auto* cast = graph->insertUncheckedCast(node->output(), optional->getElementType());
      node->output()->replaceAllUsesAfterNodeWith(cast->node(), cast);
      folded.push_back({std::move(*path), c10::IValue(), true});
    }
  }
  return folded;
}

void hoist_attributes(const std::shared_ptr<Graph>& graph) {
  const auto set_names = set_attributes(*graph);
  // Reads of an object come before reads of its attributes, so one pass moves both.
  for (auto* read : attribute_reads(*graph)) {
    auto* holder = read->owningBlock()->owningNode();
    while (holder != nullptr && holder->kind() == prim::If &&
           set_names.count(read->s(c10::attr::name)) == 0 &&
           read->input()->node()->owningBlock() != read->owningBlock()) {
      read->moveBefore(holder);
      holder = read->owningBlock()->owningNode();
    }
  }
}

bool holds(const FoldedAttribute& attribute, const Object& root) {
  const auto value = read_path(root, attribute.path);
  if (!value)
    return false;
  if (attribute.other_object) {
    const auto other = attribute.other_object->empty() ? std::optional(c10::IValue(root))
                                                       : read_path(root, *attribute.other_object);
    return other && value->isObject() && other->isObject() &&
           (&value->toObjectRef() == &other->toObjectRef()) == attribute.is_other_object;
  }
  if (attribute.structure != nullptr)
    return attribute.structure->matches(*value);
  if (attribute.not_none)
    return !value->isNone();
  if (attribute.rank >= 0)
    return value->isTensor() && value->toTensor().defined() &&
           value->toTensor().dim() == attribute.rank;
  if (value->tagKind() != attribute.value.tagKind())
    return false;
  if (value->isDouble())  // 0.0 is not -0.0 here, and a NaN is itself
    return std::bit_cast<int64_t>(value->toDouble()) ==
           std::bit_cast<int64_t>(attribute.value.toDouble());
  return value->isNone() || *value == attribute.value;
}

std::string difference(const FoldedAttribute& attribute, const Object& root) {
  std::string name = "attribute ";
  for (const auto& step : attribute.path)
    name += (name.back() == ' ' ? "" : ".") + step;
  const auto value = read_path(root, attribute.path);
  if (!value)
    return name + " does not exist any more";
  if (attribute.other_object)
    return name + " is another object";
  if (attribute.structure != nullptr)
    return name + ' ' + attribute.structure->difference(*value);
  if (attribute.not_none)
    return name + " is None now";
  if (attribute.rank >= 0 && value->isTensor() && value->toTensor().defined())
    return c10::str(name, " has ", value->toTensor().dim(), " dimensions instead of ",
                    attribute.rank);
  const auto text = [](const c10::IValue& each) -> std::string {
    if (each.isBool())
      return each.toBool() ? "True" : "False";
    return each.isTensor() || each.isObject() ? each.tagKind() : c10::str(each);
  };
  return name + " is " + text(*value) + " instead of " + text(attribute.value);
}

}  // namespace aten_recompute
