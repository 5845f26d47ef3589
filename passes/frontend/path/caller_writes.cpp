#include "passes/frontend/path/caller_writes.h"

#include <algorithm>
#include <utility>

namespace aten_recompute {

using c10::IValue;
using torch::jit::Value;

namespace {

bool has_memory(const at::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage();
}

const void* storage_impl_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

}  // namespace

CallerWrites::~CallerWrites() {
  snapshots_.restore();
}

void CallerWrites::add_given(const IValue& value) {
  if (value.isTensor()) {
    if (has_memory(value.toTensor()))
      ++given_[storage_impl_of(value.toTensor())];
  } else if (value.isTuple()) {
    for (const auto& element : value.toTupleRef().elements())
      add_given(element);
  } else if (value.isList()) {
    for (const auto& element : value.toListRef())
      add_given(element);
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict())
      add_given(entry.value());
  }
}

bool CallerWrites::is_callers(const at::Tensor& tensor) const {
  return has_memory(tensor) && given_.count(storage_impl_of(tensor)) != 0;
}

bool CallerWrites::is_own(const at::Tensor& tensor) const {
  return has_memory(tensor) && (!is_callers(tensor) || is_taken(tensor));
}

void CallerWrites::take_over(const at::Tensor& tensor) {
  taken_.insert(storage_impl_of(tensor));
}

bool CallerWrites::is_taken(const at::Tensor& tensor) const {
  return has_memory(tensor) && taken_.count(storage_impl_of(tensor)) != 0;
}

bool CallerWrites::is_given_twice(const at::Tensor& tensor) const {
  return given_.at(storage_impl_of(tensor)) > 1;
}

void CallerWrites::prepare_write(const IValue& value) {
  if (value.isTensor() && is_callers(value.toTensor()))
    snapshots_.add(value.toTensor());
}

void CallerWrites::add_change(torch::jit::Node* node, std::vector<Item> operands) {
  changes_.push_back({node, std::move(operands)});
}

bool CallerWrites::changes_containers() const {
  return std::any_of(changes_.begin(), changes_.end(),
                     [](const Change& change) { return change.operands[0].container != nullptr; });
}

void CallerWrites::write_changes(PathBuilder& builder) {
  for (auto& change : changes_) {
    builder.set_origin(change.node);
    std::vector<Value*> symbols;
    for (size_t i = 0; i < change.operands.size(); ++i) {
      auto& item = change.operands[i];
      const bool is_target = i == 0 && item.container != nullptr;
      symbols.push_back(is_target ? item.container->source
                                  : builder.symbol_of(item, change.node->input(i)->type()));
    }
    builder.add_copy(change.node, symbols);
  }
  builder.finish_changes();
}

}  // namespace aten_recompute
