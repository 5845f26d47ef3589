#include "passes/autodiff/gradient_sums.h"

#include <algorithm>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;
namespace prim = c10::prim;

namespace {

// Returns the input that the value is, or is a cast of; nullptr if it is neither.
const Value* input_of(const Value* value) {
  if (value->node()->kind() == c10::aten::to)
    value = value->node()->input(0);
  while (is_cast(value->node()))  // an optional parameter, such as a bias
    value = value->node()->input(0);
  return value->node()->kind() == prim::Param ? value : nullptr;
}

}  // namespace

bool is_list_of_tensors(const Value* value) {
  auto list = value->type()->cast<c10::ListType>();
  return list != nullptr && is_tensor_type(*list->getElementType());
}

bool has_tensor_elements(const Value* list) {
  return list->type()->expect<c10::ListType>()->getElementType()->isSubtypeOf(
      *c10::TensorType::get());
}

void GradientSums::require_tensor(Value* value) {
  if (contains_tensor(*value->type()))
    require(value);
}

void GradientSums::share_gradient(Value* cast, Value* value) {
  originals_[cast] = original(value);
}

Value* GradientSums::original(Value* value) const {
  const auto found = originals_.find(value);
  return found == originals_.end() ? value : found->second;
}

Value* GradientSums::gradient_of(Value* value) const {
  const auto found = gradients_.find(original(value));
  return found == gradients_.end() ? nullptr : found->second;
}

Value* GradientSums::insert_list_of(c10::ArrayRef<Value*> values) {
  if (std::none_of(values.begin(), values.end(),
                   [&](auto* each) { return gradient_of(each) != nullptr; }))
    return nullptr;
  std::vector<Value*> elements;
  for (auto* value : values) {
    auto* gradient = gradient_of(value);
    elements.push_back(gradient != nullptr ? gradient : graph_.insertConstant(c10::IValue()));
  }
  return graph_.insertNode(graph_.createList(c10::OptionalType::ofTensor(), elements))->output();
}

void GradientSums::track_outputs(const Node* node) {
  const auto inputs = node->inputs();
  if (is_non_differentiable(node) ||
      std::none_of(inputs.begin(), inputs.end(),
                   [&](const auto* input) { return is_tracked(input); }))
    return;
  for (const auto* output : node->outputs()) {
    if (contains_tensor(*output->type()))
      tracked_.insert(output);
  }
}

void GradientSums::add(Value* value, Value* gradient) {
  value = original(value);
  if (!requires_grad(value))
    return;
  if (passing_.count(value) != 0) {
    auto* operand = value->node()->input(0);
    auto* converted = graph_.insert(
        c10::aten::to, {gradient, graph_.insert(prim::dtype, {operand}), false, false});
    auto* size = graph_.insert(c10::aten::size, {operand});
    add(operand, graph_.insert(c10::aten::expand, {converted, size}));
    return;
  }
  const bool list = is_list_of_tensors(value);
  // An element of a list may have no gradient, unless a node of the graph makes the list from its
  // elements: those all get one.
  if (list && value->node()->kind() != prim::ListConstruct && has_tensor_elements(gradient)) {
    gradient = graph_.insertNode(graph_.create(symbols::kOptionalList, {gradient}, 1))->output();
    gradient->setType(c10::ListType::create(c10::OptionalType::ofTensor()));
  }
  auto& slot = gradients_[value];
  if (slot == nullptr) {
    slot = gradient;
    return;
  }
  auto* sum = graph_.insertNode(
      graph_.create(list ? symbols::kAccumulateList : symbols::kAccumulate, {slot, gradient}, 1));
  sum->output()->setType(gradient->type());
  if (const auto* input = input_of(value))
    sum->i_(symbols::kOfInput, static_cast<int64_t>(input->offset()));
  slot = sum->output();
}

void GradientSums::add_each(c10::ArrayRef<Value*> values, c10::ArrayRef<Value*> gradients,
                            bool reversed) {
  for (size_t k = 0; k < values.size(); ++k) {
    const auto i = reversed ? values.size() - 1 - k : k;
    add(values[i], gradients[i]);
  }
}

}  // namespace aten_recompute
