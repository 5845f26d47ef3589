#include "backend/autograd/stage_node.h"

#include <ATen/ops/empty.h>

#include "common/torch_compat.h"

namespace aten_recompute {

using torch::autograd::Edge;

namespace {

// Returns a tensor without elements on the first accelerator that a gradient goes to; an undefined
// one if there is none.
at::Tensor on_accelerator(const std::vector<Edge>& edges) {
  for (const auto& edge : edges) {
    if (!edge.is_valid() || edge.input_nr >= edge.function->num_inputs())
      continue;
    const auto device = edge.function->input_metadata(edge.input_nr).device();
    if (!device.is_cpu() && !device.is_meta())
      return at::empty({0}, at::TensorOptions(device));
  }
  return {};
}

}  // namespace

NodePtr<torch::autograd::Node> make_stages(const std::shared_ptr<RegionCall>& call,
                                           SummandEdges edges) {
  const auto& stages = call->compiled_region().stages();
  std::vector<NodePtr<StageNode>> nodes(stages.size());
  // The engine chooses the thread and the stream of a node by its inputs. On the thread of the
  // device, the gradients of a stage are handed on before the next stage begins, as on the CPU.
  const auto place = on_accelerator(edges.edges);
  // Make the last stage first: where the engine has a choice, it runs younger nodes earlier.
  for (size_t i = stages.size(); i-- > 0;) {
    nodes[i] = make_node<StageNode>(call, i);
    for (auto gradient : stages[i].gradients)
      nodes[i]->add_next_edge(std::move(edges.edges[gradient]));
    if (i + 1 < stages.size()) {
      if (place.defined())
        nodes[i + 1]->add_input_metadata(place);
      else
        nodes[i + 1]->add_input_metadata(torch::autograd::Node::undefined_input());
      nodes[i]->add_next_edge(Edge(nodes[i + 1], 0));
    }
    for (auto gradient : stages[i].gradients) {
      if (const auto gate = edges.gates.find(gradient); gate != edges.gates.end())
        nodes[i]->add_next_edge(std::move(gate->second));
    }
  }
  return nodes.front();
}

}  // namespace aten_recompute
