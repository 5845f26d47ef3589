// What shape functions read and make.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace aten_recompute::shapes {

using Sizes = std::vector<int64_t>;

// The operands of a node under the names of its schema.
class Operands {
 public:
  Operands(const c10::FunctionSchema& schema, torch::jit::Stack values)
      : schema_(schema), values_(std::move(values)) {}

  const c10::IValue& operator[](size_t i) const { return values_.at(i); }
  size_t size() const { return values_.size(); }
  const std::vector<c10::IValue>& all() const { return values_; }

  // Returns None where the schema has no such argument.
  c10::IValue named(const std::string& name) const {
    const auto index = schema_.argumentIndexWithName(name);
    return index && static_cast<size_t>(*index) < values_.size() ? values_[*index] : c10::IValue();
  }
  at::Tensor tensor(const std::string& name) const {
    const auto value = named(name);
    return value.isTensor() ? value.toTensor() : at::Tensor();
  }
  // An int stands for as many equal ones as are wanted.
  Sizes ints(const std::string& name, size_t count, int64_t fallback) const {
    const auto value = named(name);
    if (value.isIntList()) {
      auto list = value.toIntVector();
      if (list.size() == 1)
        list.assign(count, list[0]);
      return list.size() == count ? list : Sizes(count, fallback);
    }
    return Sizes(count, value.isInt() ? value.toInt() : fallback);
  }

 private:
  const c10::FunctionSchema& schema_;
  torch::jit::Stack values_;
};

// Returns a meta tensor without strides of its own.
at::Tensor empty(const Sizes& sizes, const at::TensorOptions& options);

// Returns a meta tensor of so many bytes, which stands for workspace.
at::Tensor scratch(int64_t bytes);

// Returns the bytes of all elements; 0 for an undefined tensor.
int64_t bytes_of(const at::Tensor& tensor);

// Operators of convolutions make a dense copy of an operand that is a part of another tensor.
int64_t dense_copy(const at::Tensor& tensor);

}  // namespace aten_recompute::shapes
