#include "passes/profile/known_masks.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include <utility>

namespace aten_recompute {
namespace {

using c10::IValue;

bool is_mask(const IValue& value) {
  return value.isTensor() && value.toTensor().defined() &&
         value.toTensor().scalar_type() == at::kBool;
}

bool is_described_mask(const IValue& value) {
  return is_mask(value) && value.toTensor().is_meta();
}

// Returns the only defined index of the list and its place, if that is a mask.
std::optional<std::pair<at::Tensor, int64_t>> only_mask(const IValue& indices) {
  std::optional<std::pair<at::Tensor, int64_t>> found;
  const auto list = indices.toListRef();
  for (size_t i = 0; i < list.size(); ++i) {
    if (!list[i].isTensor() || !list[i].toTensor().defined())
      continue;
    if (found || !is_mask(list[i]))
      return std::nullopt;
    found.emplace(list[i].toTensor(), static_cast<int64_t>(i));
  }
  return found;
}

}  // namespace

KnownMasks::Mask* KnownMasks::find(const at::Tensor& mask) {
  const auto found = masks_.find(storages_.index_of(mask));
  return found != masks_.end() && mask.numel() == found->second.num_elements ? &found->second
                                                                             : nullptr;
}

void KnownMasks::note(size_t instruction, const std::vector<IValue>& operands,
                      const torch::jit::Stack& results) {
  for (size_t i = 0; i < results.size(); ++i) {
    if (!is_described_mask(results[i]))
      continue;
    const auto& mask = results[i].toTensor();
    masks_.try_emplace(storages_.index_of(mask), Mask{instruction, i, mask.numel(), std::nullopt});
  }
  if (program_.nodes[instruction]->kind() != c10::aten::index || !operands[1].isList() ||
      !results[0].isTensor())
    return;
  const auto selecting = only_mask(operands[1]);
  if (!selecting || !is_described_mask(selecting->first))
    return;
  if (auto* mask = find(selecting->first))
    mask->selected = results[0].toTensor().size(selecting->second);
}

std::optional<at::Tensor> KnownMasks::real(const at::Tensor& mask) {
  auto* known = find(mask);
  if (known == nullptr)
    return std::nullopt;
  if (!known->selected)
    known->selected = forward_.true_elements(known->instruction, known->output);
  const auto device = storages_.device_of(mask);
  auto result = at::zeros(mask.sizes(), at::TensorOptions().dtype(at::kBool).device(device));
  result.view({-1}).slice(0, 0, *known->selected).fill_(true);
  storages_.index_of(result, /*callers=*/false, device);
  return result;
}

std::optional<std::vector<IValue>> KnownMasks::with_real_masks(std::vector<IValue> operands) {
  bool found = false;
  bool all_known = true;
  const auto replaced = [&](const IValue& value) -> IValue {
    if (!is_described_mask(value))
      return value;
    found = true;
    auto mask = real(value.toTensor());
    all_known = all_known && mask.has_value();
    return mask ? IValue(*std::move(mask)) : value;
  };
  for (auto& operand : operands) {
    if (!operand.isList()) {
      operand = replaced(operand);
      continue;
    }
    c10::impl::GenericList list(operand.toList().elementType());
    for (const auto& element : operand.toListRef())
      list.push_back(replaced(element));
    operand = std::move(list);
  }
  if (!found || !all_known)
    return std::nullopt;
  return operands;
}

}  // namespace aten_recompute
