#include "passes/profile/estimated_gradients.h"

#include <ATen/ExpandUtils.h>

#include <algorithm>
#include <utility>

#include "passes/profile/flops.h"

namespace aten_recompute {
namespace {

// Describes a dense gradient of the tensor, in a storage of its own.
Result gradient_like(const at::Tensor& tensor, at::Device device, NodeClass& node_class) {
  Result result;
  result.kind = Result::Kind::kTensor;
  result.tensor.defined = true;
  result.tensor.options = tensor.options().device(device);
  result.tensor.sizes = tensor.sizes().vec();
  result.tensor.strides = at::infer_dense_strides(tensor.sizes(), tensor.strides());
  result.tensor.memory.own = node_class.own_bytes.size();
  node_class.own_bytes.push_back(tensor.numel() * static_cast<int64_t>(tensor.element_size()));
  node_class.own_extent.push_back(node_class.own_bytes.back());
  return result;
}

}  // namespace

at::Tensor incoming_gradient(const at::Tensor& output, at::Device device,
                             const std::vector<bool>& expanded) {
  auto sizes = output.sizes().vec();
  const auto dimensions = std::min(sizes.size(), expanded.size());
  for (size_t i = 0; i < dimensions; ++i)
    sizes[i] = expanded[i] ? 1 : sizes[i];
  auto strides = at::infer_dense_strides(sizes, output.strides());
  for (size_t i = 0; i < dimensions; ++i)
    strides[i] = expanded[i] ? 0 : strides[i];
  const auto bytes = c10::multiply_integers(sizes) * static_cast<int64_t>(output.element_size());
  return tensor_on(output.options().device(device), storage_without_memory(bytes), output.sizes(),
                   strides, 0);
}

NodeClass estimate_tape_backward(const Opaque& tape, const std::vector<int64_t>& requires_grad,
                                 DescribedStorages& storages) {
  NodeClass node_class;
  double moved = 0.0;
  for (size_t i = 0; i < requires_grad.size(); ++i) {
    if (requires_grad[i] == 0)
      continue;
    Result result;
    const auto& operand = tape.operands[i];
    result.kind = operand.isList() ? Result::Kind::kList : Result::Kind::kTensor;
    result.element_type = c10::TensorType::get();
    for_each_tensor(operand, [&](const at::Tensor& tensor) {
      auto gradient = gradient_like(tensor, storages.device_of(tensor), node_class);
      moved += static_cast<double>(node_class.own_bytes.back());
      if (operand.isList())
        result.elements.push_back(std::move(gradient));
      else
        result.tensor = std::move(gradient.tensor);
    });
    node_class.results.push_back(std::move(result));
  }
  node_class.cost.seconds = model_seconds(0.0, 2 * moved);
  return node_class;
}

}  // namespace aten_recompute
