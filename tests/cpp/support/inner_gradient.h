// Graphs of methods that ask for a gradient.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "runtime/inner_gradient.h"

namespace aten_recompute::test {

// Appends an aten_recompute::gradient of the graph's first output for its first input. Returns the
// gradient.
inline torch::jit::Value* append_gradient(torch::jit::Graph& graph, bool create_graph,
                                          bool retain_graph) {
  auto* node = graph.appendNode(
      graph.create(symbols::kGradient, {graph.outputs()[0], graph.inputs()[0]}, /*num_outputs=*/2));
  node->output(0)->setType(c10::TensorType::get());
  node->output(1)->setType(c10::BoolType::get());
  GradientRequest request;
  request.num_outputs = request.num_targets = 1;
  request.has_gradient = {0};
  request.create_graph = create_graph;
  request.retain_graph = retain_graph;
  request.write(*node);
  return node->output(0);
}

}  // namespace aten_recompute::test
