#include "passes/strategy/graph_view.h"

#include <torch/csrc/jit/ir/ir.h>

#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/dominator_tree.hpp>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "ir/forward_values.h"
#include "ir/node_traits.h"

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;

GraphView view_forward(const JointGraph& joint, const std::vector<bool>& is_attribute) {
  GraphView view;
  std::unordered_map<Value*, GraphView::Vertex> producer;
  std::unordered_set<Value*> activations;
  view.source = boost::add_vertex(view.graph);
  view.sink = boost::add_vertex(view.graph);
  for (size_t i = 0; i < joint.num_inputs; ++i) {
    auto* input = joint.graph->inputs()[i];
    if (is_attribute[i] || !contains_tensor(*input->type()))
      continue;
    activations.insert(input);
    if (joint.requires_grad.count(input->unique()) != 0)
      producer[input] = view.source;
  }
  for (auto* node : joint.graph->nodes()) {
    if (node == joint.backward_start)
      break;
    if (!node->blocks().empty() || mutates_an_argument(node))
      continue;
    bool needs_gradient = false;
    for (auto* output : node->outputs()) {
      needs_gradient = needs_gradient || joint.requires_grad.count(output->unique()) != 0;
    }
    bool is_activation = false;
    std::vector<GraphView::Vertex> sources;
    for (auto* input : node->inputs()) {
      is_activation = is_activation || activations.count(input) != 0;
      const auto found = producer.find(input);
      if (found == producer.end())
        continue;
      if (std::find(sources.begin(), sources.end(), found->second) == sources.end()) {
        sources.push_back(found->second);
      }
    }
    if (!is_activation)
      continue;
    for (auto* output : node->outputs()) {
      if (contains_tensor(*output->type()))
        activations.insert(output);  // sizes carry nothing on
    }
    if (!needs_gradient)
      continue;
    if (sources.empty())
      sources.push_back(view.source);
    const auto vertex = boost::add_vertex(view.graph);
    view.nodes.push_back(node);
    for (auto from : sources)
      boost::add_edge(from, vertex, view.graph);
    for (auto* output : node->outputs())
      producer[output] = vertex;
  }
  for (size_t i = 0; i < joint.num_outputs; ++i) {
    const auto found = producer.find(joint.graph->outputs()[i]);
    if (found == producer.end() || !joint.output_requires_grad[i])
      continue;
    boost::add_edge(found->second, view.sink, view.graph);
  }
  return view;
}

namespace {

struct CopyEdges : boost::default_bfs_visitor {
  explicit CopyEdges(GraphView::Graph& copy) : copy(copy) {}
  template <typename Edge>
  void examine_edge(Edge edge, const GraphView::Graph& graph) {
    boost::add_edge(boost::source(edge, graph), boost::target(edge, graph), copy);
  }
  GraphView::Graph& copy;
};

// The edges that paths from `root` take, over the same vertices. (Boost's dominators go wrong where
// an unreachable vertex has an edge to one that is reached.)
GraphView::Graph reachable(const GraphView::Graph& graph, GraphView::Vertex root) {
  GraphView::Graph edges(boost::num_vertices(graph));
  boost::breadth_first_search(graph, root, boost::visitor(CopyEdges(edges)));
  return edges;
}

// Vertices through which every path from `root` to the sink goes; none if there is no path.
std::vector<GraphView::Vertex> dominators_of_sink(const GraphView& view, GraphView::Vertex root) {
  const auto reached = reachable(view.graph, root);
  const auto none = boost::graph_traits<GraphView::Graph>::null_vertex();
  std::vector<GraphView::Vertex> dominator(boost::num_vertices(view.graph), none);
  boost::lengauer_tarjan_dominator_tree(
      reached, root,
      boost::make_iterator_property_map(dominator.begin(),
                                        boost::get(boost::vertex_index, reached)));
  std::vector<GraphView::Vertex> dominators;
  for (auto v = dominator[view.sink]; v != none && v != view.source; v = dominator[v])
    dominators.push_back(v);
  return dominators;
}

// What the vertices separate by, in forward order.
std::vector<Value*> values_of(const GraphView& view, const std::set<GraphView::Vertex>& chosen) {
  const std::unordered_set<Node*> vertices(view.nodes.begin(), view.nodes.end());
  std::vector<Value*> separators;
  for (auto v : chosen) {
    // A node with several outputs separates by its first one, unless another goes on in the
    // forward: layer norm's mean and deviation, for example, are read by its backward only.
    auto* node = view.node(v);
    bool others_go_on = false;
    for (size_t i = 1; i < node->outputs().size(); ++i) {
      for (const auto& use : node->output(i)->uses()) {
        others_go_on = others_go_on || vertices.count(use.user) != 0;
      }
    }
    if (others_go_on)
      continue;
    auto* single = node->outputs()[0];
    if (single->type()->kind() == c10::TypeKind::TensorType)
      separators.push_back(single);
  }
  return separators;
}

}  // namespace

std::vector<Value*> single_value_separators(const GraphView& view) {
  const auto dominators = dominators_of_sink(view, view.source);
  return values_of(view, {dominators.begin(), dominators.end()});
}

std::vector<Value*> separators_by_source(const GraphView& view) {
  std::set<GraphView::Vertex> chosen;
  for (auto [edge, end] = boost::out_edges(view.source, view.graph); edge != end; ++edge) {
    const auto dominators = dominators_of_sink(view, boost::target(*edge, view.graph));
    chosen.insert(dominators.begin(), dominators.end());
  }
  return values_of(view, chosen);
}

}  // namespace aten_recompute
