// The inputs of a region, and the leaves that it makes, as autocast sees them.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <set>
#include <vector>

namespace torch::jit {
struct Graph;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// Returns a meta tensor of the same sizes, strides and type. Throws NotDifferentiable for a sparse
// tensor.
at::Tensor on_meta(const at::Tensor& tensor);
// Returns the values with meta tensors in place of their tensors. Throws as above.
std::vector<c10::IValue> on_meta(const std::vector<c10::IValue>& values);

// Returns the device of the first tensor that is not on the CPU, where numbers and the places of
// leaves (runtime/returned_leaf.h) are, too; the CPU if there is none.
c10::DeviceType device_of(const std::vector<c10::IValue>& inputs);

// Returns the value that is the same tensor and was made first.
torch::jit::Value* tensor_of(torch::jit::Value* value);

// Returns the values whose casts autocast caches, if the cache is on: leaves that require a
// gradient, among the graph's inputs and of what the graph makes leaves by requires_grad_().
std::set<const torch::jit::Value*> values_cached_by_autocast(
    torch::jit::Graph& graph, const std::vector<c10::IValue>& inputs);

}  // namespace aten_recompute
