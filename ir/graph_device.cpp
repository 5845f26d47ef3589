#include "ir/graph_device.h"

#include <ATen/ops/empty_strided.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "ir/node_traits.h"

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

void put_on_meta(torch::jit::Graph& graph) {
  const torch::jit::WithInsertPoint guard(*graph.nodes().begin());
  auto* meta = graph.insertConstant(at::Device(at::kMeta));
  for_each_node(graph.block(), [&](torch::jit::Node* node) {
    if (node->kind() == c10::prim::Constant && node->hasAttribute(c10::attr::value) &&
        node->kindOf(c10::attr::value) == torch::jit::AttributeKind::t) {
      const auto& constant = node->t(c10::attr::value);
      if (constant.defined() && constant.dim() > 0)
        node->t_(c10::attr::value, at::empty_strided(constant.sizes(), constant.strides(),
                                                     constant.options().device(at::kMeta)));
    }
    const auto* schema = node->maybeSchema();
    if (schema == nullptr)
      return;
    for (size_t i = 0; i < std::min(schema->arguments().size(), node->inputs().size()); ++i) {
      if (schema->arguments()[i].name() == "device")
        node->replaceInput(i, meta);
    }
  });
}

void put_on_meta(const torch::jit::Node& node, torch::jit::Stack& operands) {
  const auto* schema = node.maybeSchema();
  if (schema == nullptr)
    return;
  const auto& arguments = schema->arguments();
  for (size_t i = 0; i < std::min(arguments.size(), operands.size()); ++i) {
    if (arguments[i].name() == "device" && (operands[i].isDevice() || operands[i].isNone()))
      operands[i] = at::Device(at::kMeta);
  }
}

}  // namespace aten_recompute
