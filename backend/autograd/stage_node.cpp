#include "backend/autograd/stage_node.h"

#include "common/torch_compat.h"

namespace aten_recompute {

using torch::autograd::Edge;

NodePtr<torch::autograd::Node> make_stages(const std::shared_ptr<RegionCall>& call,
                                           SummandEdges edges) {
  const auto& stages = call->compiled_region().stages();
  std::vector<NodePtr<StageNode>> nodes(stages.size());
  // Make the last stage first: where the engine has a choice, it runs younger nodes earlier.
  for (size_t i = stages.size(); i-- > 0;) {
    nodes[i] = make_node<StageNode>(call, i);
    for (auto gradient : stages[i].gradients)
      nodes[i]->add_next_edge(std::move(edges.edges[gradient]));
    if (i + 1 < stages.size()) {
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
