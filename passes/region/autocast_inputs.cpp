#include "passes/region/autocast_inputs.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "ir/gradient_reach.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/autodiff/not_differentiable.h"
#include "runtime/map_tensors.h"

namespace aten_recompute {

using torch::jit::Value;

namespace {

bool is_cached(const c10::IValue& input) {
  if (!input.isTensor() || !input.toTensor().defined())
    return false;
  const auto& tensor = input.toTensor();
  return tensor.scalar_type() == at::kFloat && tensor.requires_grad() && tensor.is_leaf() &&
         !tensor.is_view();
}

}  // namespace

at::Tensor on_meta(const at::Tensor& tensor) {
  if (tensor.layout() != at::kStrided)
    throw NotDifferentiable("under autocast, the types of sparse tensors are not followed");
  return at::empty_strided(tensor.sizes(), tensor.strides(),
                           tensor.options().device(at::kMeta).requires_grad(false));
}

std::vector<c10::IValue> on_meta(const std::vector<c10::IValue>& values) {
  std::vector<c10::IValue> result;
  for (const auto& value : values)
    result.push_back(map_tensors(value, [](const at::Tensor& tensor) { return on_meta(tensor); }));
  return result;
}

c10::DeviceType device_of(const std::vector<c10::IValue>& inputs) {
  for (const auto& input : inputs) {
    if (input.isTensor() && input.toTensor().defined() && !input.toTensor().is_cpu())
      return input.toTensor().device().type();
  }
  return at::kCPU;
}

Value* tensor_of(Value* value) {
  while (value->node()->kind() == c10::prim::unchecked_cast)
    value = value->node()->input();
  return value;
}

std::set<const Value*> values_cached_by_autocast(torch::jit::Graph& graph,
                                                 const std::vector<c10::IValue>& inputs) {
  std::set<const Value*> cached, views;
  std::vector<bool> requires_grad;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool is_tensor = inputs[i].isTensor() && inputs[i].toTensor().defined();
    requires_grad.push_back(is_tensor && inputs[i].toTensor().requires_grad());
    if (is_tensor && inputs[i].toTensor().is_view())
      views.insert(graph.inputs()[i]);
    if (is_cached(inputs[i]))
      cached.insert(graph.inputs()[i]);
  }
  for (auto* node : graph.nodes()) {
    if (node->kind() != symbols::kRequireGrad)
      continue;
    const auto* operand = tensor_of(node->input(0));
    const auto* maker = operand->node();
    const bool is_view =
        views.count(operand) != 0 || (is_pure_view(maker) && maker->kind() != c10::aten::detach &&
                                      maker->kind() != symbols::kRequireGrad);
    const bool is_leaf = values_that_require_grad(graph, requires_grad, node).count(operand) == 0;
    if (cached.count(operand) != 0 || (is_leaf && !is_view))
      cached.insert(node->output());
  }
  return cached;
}

}  // namespace aten_recompute
