#include "passes/frontend/regions/region_eligibility.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "ir/check_blocks.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "runtime/returned_leaf.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

// Returns whether a region may compute with the type. Tuples, dicts and objects stay outside.
bool is_region_type(const c10::Type& type) {
  switch (type.kind()) {
    case c10::TypeKind::TensorType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::ComplexType:
    case c10::TypeKind::BoolType:
    case c10::TypeKind::NumberType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::NoneType:
    case c10::TypeKind::DeviceObjType:
      return true;
    case c10::TypeKind::ListType:
    case c10::TypeKind::OptionalType:
      return is_region_type(*type.containedTypes()[0]);
    default:
      return false;
  }
}

// Returns whether both nodes read the same attribute of the same object.
bool same_attribute(const Node* a, const Node* b) {
  while (a->kind() == prim::GetAttr && b->kind() == prim::GetAttr) {
    if (a->s(c10::attr::name) != b->s(c10::attr::name))
      return false;
    if (a->input(0) == b->input(0))
      return true;
    a = a->input(0)->node();
    b = b->input(0)->node();
  }
  return false;
}

// Returns whether a node in a block within `block` makes the value.
bool is_made_within(const Block* block, const Value* value) {
  const auto* inner = value->node()->owningBlock();
  if (inner == block)
    return false;
  while (inner != nullptr && inner != block)
    inner = inner->owningNode() == nullptr ? nullptr : inner->owningNode()->owningBlock();
  return inner == block;
}

// Returns whether the operator makes a leaf, and the block returns it or puts it into a container.
// The caller may ask for its gradient, and a region would return another tensor.
bool makes_returned_leaf(const Node* node) {
  const auto argument = leaf_argument(node);
  if (argument == LeafArgument::kNone || argument == LeafArgument::kFalse)
    return false;
  const auto& uses = node->output()->uses();
  return std::any_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
    const auto outputs = use.user->outputs();
    return use.user->kind() == prim::Return ||
           std::any_of(outputs.begin(), outputs.end(), [](const Value* output) {
             return contains_tensor(*output->type()) && !is_tensor_type(*output->type());
           });
  });
}

}  // namespace

bool is_list_with_tensors(const c10::Type& type) {
  return type.kind() != c10::TypeKind::TensorType && !is_tensor_type(type) && contains_tensor(type);
}

Eligibility EligibilityChecker::check(Node* node) const {
  if (facts_.excluded.count(node) != 0)
    return {may_be_cast(node) ? Place::kBreak : Place::kOutside, "makes a list that leaves it"};
  if (node->hasAttribute(symbols::kBeforeRegions))
    return {Place::kBreak, "makes a tensor that regions take as an input"};
  if (node->kind() == kReturnLeaf)
    return {Place::kBreak, "hands a leaf to the caller"};
  if (node->kind() == prim::GetAttr) {
    return facts_.set_attributes.count(node->s(c10::attr::name)) != 0
               ? Eligibility{Place::kBreak, "reads an attribute that the method sets"}
               : Eligibility{Place::kOutside, ""};
  }
  if (node->kind() == symbols::kGradient && facts_.has_gradients)
    return {Place::kRegion, ""};
  if (runs_autograd(node))
    return {Place::kBreak, "runs autograd inside the method"};
  if (asks_autograd(node))
    return outside(node, "reads the state of autograd, which is off inside a region");
  if (!node->blocks().empty())
    return check_control_flow(node);
  if (mutates_an_argument(node))
    return check_mutation(node);
  if (bounds_autocast_block(node) && facts_.has_autocast_blocks)
    return {Place::kRegion, ""};
  if (node->hasSideEffects() && !raises_or_warns(node))
    return {Place::kBreak, "has side effects"};
  if (node->maybeOperator() == nullptr && node->kind() != prim::ListConstruct &&
      node->kind() != prim::ListUnpack && node->kind() != prim::unchecked_cast &&
      node->kind() != prim::unchecked_unwrap_optional) {
    return outside(node, "is not an operator");
  }
  for (auto* input : node->inputs()) {
    if (!is_region_type(*input->type()))
      return outside(node, "takes a " + input->type()->str());
    if (is_list_with_tensors(*input->type()) && input->node()->kind() != prim::Constant &&
        in_region_.count(input->node()) == 0) {
      return outside(node, "takes a list of tensors from outside the region");
    }
  }
  for (auto* output : node->outputs()) {
    if (!is_region_type(*output->type()))
      return outside(node, "makes a " + output->type()->str());
  }
  if (makes_returned_leaf(node))
    return outside(node, "makes a leaf that the method returns");
  return {Place::kRegion, ""};
}

bool EligibilityChecker::may_be_cast(const Node* node) const {
  const auto outputs = node->outputs();
  return facts_.has_autocast_blocks && node->maybeOperator() != nullptr &&
         !may_alias_an_argument(node) &&
         std::any_of(outputs.begin(), outputs.end(),
                     [](const Value* value) { return contains_tensor(*value->type()); });
}

Eligibility EligibilityChecker::outside(Node* node, const std::string& reason) const {
  const bool pure = !may_be_cast(node) && !node->hasSideEffects() &&
                    !facts_.aliases.hasWriters(node) && !node->isNondeterministic() &&
                    node->kind() != prim::CallMethod && node->kind() != prim::CallFunction;
  return {pure ? Place::kOutside : Place::kBreak, reason};
}

// Checks that compute no tensor may be part of a region. They run in the forward, in order.
Eligibility EligibilityChecker::check_control_flow(Node* node) const {
  for (auto* output : node->outputs()) {
    if (contains_tensor(*output->type()))
      return {Place::kBreak, "control flow with tensor results"};
    if (!is_region_type(*output->type()))
      return {Place::kBreak, "control flow"};
  }
  for (auto* input : node->inputs()) {
    if (!is_region_type(*input->type()))
      return {Place::kBreak, "control flow"};
  }
  for (auto* block : node->blocks()) {
    if (!only_raises_or_warns(block) || !may_enter_region(block))
      return {Place::kBreak, "control flow with effects or tensors"};
  }
  return {Place::kRegion, ""};
}

bool EligibilityChecker::may_enter_region(Block* block) const {
  bool may_enter = true;
  for_each_node(block, [&](Node* node) {
    const auto inputs = node->inputs();
    may_enter = may_enter && std::all_of(inputs.begin(), inputs.end(), [&](Value* input) {
                  // A tuple of numbers that the check itself makes does not have to enter the
                  // region.
                  const bool may_be_read =
                      is_region_type(*input->type()) ||
                      (!contains_tensor(*input->type()) && is_made_within(block_, input));
                  const bool is_list_from_outside = is_list_with_tensors(*input->type()) &&
                                                    input->node()->owningBlock() == block_ &&
                                                    in_region_.count(input->node()) == 0;
                  return may_be_read && !is_list_from_outside;
                });
  });
  return may_enter;
}

// An update of a buffer that no node reads as a tensor may be part of a region, because it cannot
// change values that are recomputed later.
Eligibility EligibilityChecker::check_mutation(Node* node) const {
  Eligibility no{Place::kBreak, "writes in place to a value that the method did not make"};
  if (node->outputs().size() != 1 || node->output()->hasUses())
    return no;
  auto* target = node->input(0);
  // Other nodes than tensor operators read a list or a dict, and profiling would change it, too.
  if (target->node()->kind() != prim::GetAttr || !is_tensor_type(*target->type()))
    return no;
  for (size_t i = 1; i < node->inputs().size(); ++i) {
    if (contains_tensor(*node->input(i)->type()) &&
        node->input(i)->node()->kind() != prim::Constant)
      return no;
    if (!is_region_type(*node->input(i)->type()))
      return no;
  }
  for (const auto& use : target->uses()) {
    if (use.user == node)
      continue;
    for (auto* output : use.user->outputs()) {
      if (contains_tensor(*output->type()))
        return no;
    }
    if (mutates_an_argument(use.user))
      return no;
  }
  // Another node may read the same buffer.
  for (auto* other : block_->nodes()) {
    if (other->kind() != prim::GetAttr || other->output() == target)
      continue;
    if (!other->output()->type()->isSubtypeOf(*c10::TensorType::get()))
      continue;
    if (same_attribute(other, target->node()))
      return no;
  }
  return {Place::kRegion, ""};
}

}  // namespace aten_recompute
