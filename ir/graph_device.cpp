#include "ir/graph_device.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

namespace aten_recompute {

void put_inputs_on_cpu(torch::jit::Graph& graph) {
  for (auto* input : graph.inputs()) {
    if (const auto type = input->type()->cast<c10::TensorType>())
      input->setType(type->withDevice(at::Device(at::kCPU)));
  }
}

bool inputs_are_on_cpu(const torch::jit::Graph& graph) {
  const auto inputs = graph.inputs();
  return std::all_of(inputs.begin(), inputs.end(), [](const torch::jit::Value* input) {
    const auto type = input->type()->cast<c10::TensorType>();
    return type == nullptr || (type->device() && type->device()->is_cpu());
  });
}

}  // namespace aten_recompute
