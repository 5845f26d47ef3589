#include "passes/frontend/path/known_elements.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <utility>

#include "ir/node_traits.h"
#include "ir/operator_facts.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using torch::jit::Node;
using torch::jit::Stack;

// What a convolution or a product may take in memory, in sizes of its result.
constexpr int64_t kWorkspace = 8;

const void* storage_impl(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

bool is_without_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_meta() && tensor.has_storage();
}

bool is_of_pytorch(const Node* node) {
  return node->maybeOperator() != nullptr && node->blocks().empty() &&
         (node->kind().is_aten() || node->kind().is_prim());
}

// Including lists of optional tensors, such as the indices of aten::index.
bool is_list_of_tensors(const IValue& value) {
  if (!value.isList())
    return false;
  const auto list = value.toListRef();
  return std::any_of(list.begin(), list.end(),
                     [](const auto& element) { return element.isTensor(); });
}

bool has_same_layout(const at::Tensor& a, const at::Tensor& b) {
  return a.layout() == at::kStrided && b.layout() == at::kStrided &&
         a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() && a.strides() == b.strides();
}

}  // namespace

void KnownElements::give(const at::Tensor& without_memory, const at::Tensor& elements) {
  if (!is_without_memory(without_memory) || elements.is_meta() || !elements.has_storage())
    return;
  given_.insert(storage_impl(elements));
  note(without_memory, elements);
}

std::optional<Stack> KnownElements::of(const Node* node, const Stack& operands) const {
  if (!is_of_pytorch(node) || is_random(node) || updates_hidden_state(node))
    return std::nullopt;
  Stack result;
  for (const auto& operand : operands) {
    auto known = with_elements(operand);
    if (!known)
      return std::nullopt;
    result.push_back(std::move(*known));
  }
  for (size_t i = 0; i < result.size(); ++i) {
    if (!writes_to(node, i))
      continue;
    const bool is_own = result[i].isTensor() && is_without_memory(operands[i].toTensor()) &&
                        given_.count(storage_impl(result[i].toTensor())) == 0;
    if (!is_own)
      return std::nullopt;
  }
  return result;
}

void KnownElements::note(const Stack& without_memory, const Stack& elements) {
  for (size_t i = 0; i < std::min(without_memory.size(), elements.size()); ++i) {
    if (without_memory[i].isTensor() && elements[i].isTensor()) {
      note(without_memory[i].toTensor(), elements[i].toTensor());
    } else if (without_memory[i].isTensorList() && elements[i].isTensorList()) {
      const auto tensors = without_memory[i].toTensorVector();
      const auto values = elements[i].toTensorVector();
      for (size_t k = 0; k < std::min(tensors.size(), values.size()); ++k)
        note(tensors[k], values[k]);
    }
  }
}

bool KnownElements::has_room(const Node* node, const Stack& without_memory) {
  int64_t more = 0;
  for (const auto& value : without_memory) {
    if (value.isTensor() && is_without_memory(value.toTensor()))
      more += static_cast<int64_t>(value.toTensor().nbytes());
  }
  if (has_fact(node, Fact::kComputeIntensive))
    more *= kWorkspace;
  ++num_asked_;
  if (bytes_ + more > most_bytes_ && more <= most_bytes_ && num_asked_ >= count_again_)
    count_bytes();
  return bytes_ + more <= most_bytes_;
}

void KnownElements::forget_memory_of(const at::Tensor& without_memory) {
  if (!is_without_memory(without_memory))
    return;
  for (auto known = known_.begin(); known != known_.end();) {
    const at::Tensor tensor(known->second.tensor.lock());
    const bool is_same = tensor.defined() && storage_impl(tensor) == storage_impl(without_memory);
    known = is_same ? known_.erase(known) : std::next(known);
  }
}

std::optional<IValue> KnownElements::with_elements(const IValue& value) const {
  if (is_list_of_tensors(value)) {
    const auto list = value.toList();
    c10::impl::GenericList result(list.elementType());
    for (size_t i = 0; i < list.size(); ++i) {
      auto element = with_elements(list.get(i));
      if (!element)
        return std::nullopt;
      result.push_back(std::move(*element));
    }
    return result;
  }
  if (!value.isTensor() || !value.toTensor().defined() || !value.toTensor().is_meta())
    return value;
  const auto known = known_.find(value.toTensor().unsafeGetTensorImpl());
  if (known == known_.end() || known->second.tensor.expired())
    return std::nullopt;
  return known->second.elements;
}

void KnownElements::note(const at::Tensor& without_memory, const at::Tensor& elements) {
  if (!is_without_memory(without_memory) || elements.is_meta() ||
      !has_same_layout(without_memory, elements))
    return;
  known_.insert_or_assign(
      without_memory.unsafeGetTensorImpl(),
      Known{c10::weak_intrusive_ptr<c10::TensorImpl>(without_memory.getIntrusivePtr()), elements});
  if (given_.count(storage_impl(elements)) == 0)
    bytes_ += static_cast<int64_t>(elements.storage().nbytes());
}

void KnownElements::count_bytes() {
  bytes_ = 0;
  std::unordered_set<const void*> counted;
  for (auto known = known_.begin(); known != known_.end();) {
    if (known->second.tensor.expired()) {
      known = known_.erase(known);
      continue;
    }
    const auto& elements = known->second.elements;
    const auto* memory = storage_impl(elements);
    if (given_.count(memory) == 0 && counted.insert(memory).second)
      bytes_ += static_cast<int64_t>(elements.storage().nbytes());
    ++known;
  }
  count_again_ = num_asked_ + known_.size() / 8;
}

}  // namespace aten_recompute
