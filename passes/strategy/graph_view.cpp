#include "passes/strategy/graph_view.h"

#include <torch/csrc/jit/ir/ir.h>

#include <boost/graph/breadth_first_search.hpp>
#include <boost/graph/dominator_tree.hpp>

#include <algorithm>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/forward_values.h"
#include "ir/node_traits.h"

namespace aten_recompute {

using torch::jit::Node;
using torch::jit::Value;

namespace {

class ViewBuilder {
 public:
  ViewBuilder(const JointGraph& joint, const std::vector<bool>& is_attribute) : joint_(joint) {
    view_.source = boost::add_vertex(view_.graph);
    view_.sink = boost::add_vertex(view_.graph);
    for (size_t i = 0; i < joint.num_inputs; ++i) {
      if (!is_attribute[i])
        add_input(joint.graph->inputs()[i]);
    }
  }

  void add_node(Node* node) {
    if (!node->blocks().empty() || mutates_an_argument(node) || !reads_activation(node))
      return;
    for (auto* output : node->outputs()) {
      if (contains_tensor(*output->type()))  // sizes are no activations
        activations_.insert(output);
    }
    if (needs_gradient(node))
      add_vertex(node);
  }

  void connect_outputs() {
    for (size_t i = 0; i < joint_.num_outputs; ++i) {
      const auto found = producer_.find(joint_.graph->outputs()[i]);
      if (found != producer_.end() && joint_.output_requires_grad[i])
        boost::add_edge(found->second, view_.sink, view_.graph);
    }
  }

  GraphView& view() { return view_; }

 private:
  void add_input(Value* input) {
    if (!contains_tensor(*input->type()))
      return;
    activations_.insert(input);
    if (joint_.requires_grad.count(input->unique()) != 0)
      producer_[input] = view_.source;
  }

  bool reads_activation(const Node* node) const {
    const auto inputs = node->inputs();
    return std::any_of(inputs.begin(), inputs.end(),
                       [&](const Value* input) { return activations_.count(input) != 0; });
  }

  bool needs_gradient(const Node* node) const {
    const auto outputs = node->outputs();
    return std::any_of(outputs.begin(), outputs.end(), [&](const Value* output) {
      return joint_.requires_grad.count(output->unique()) != 0;
    });
  }

  void add_vertex(Node* node) {
    std::vector<GraphView::Vertex> predecessors;
    for (auto* input : node->inputs()) {
      const auto found = producer_.find(input);
      if (found != producer_.end() && std::find(predecessors.begin(), predecessors.end(),
                                                found->second) == predecessors.end()) {
        predecessors.push_back(found->second);
      }
    }
    if (predecessors.empty())
      predecessors.push_back(view_.source);
    const auto vertex = boost::add_vertex(view_.graph);
    view_.nodes.push_back(node);
    for (auto from : predecessors)
      boost::add_edge(from, vertex, view_.graph);
    for (auto* output : node->outputs())
      producer_[output] = vertex;
  }

  const JointGraph& joint_;
  GraphView view_;
  std::unordered_map<const Value*, GraphView::Vertex> producer_;
  std::unordered_set<const Value*> activations_;
};

struct CopyEdges : boost::default_bfs_visitor {
  explicit CopyEdges(GraphView::Graph& copy) : copy(copy) {}
  template <typename Edge>
  void examine_edge(Edge edge, const GraphView::Graph& graph) {
    boost::add_edge(boost::source(edge, graph), boost::target(edge, graph), copy);
  }
  GraphView::Graph& copy;
};

// Returns the same vertices with the edges that paths from `root` take. Boost's dominators are
// wrong where an unreachable vertex has an edge to a reachable one.
GraphView::Graph reachable(const GraphView::Graph& graph, GraphView::Vertex root) {
  GraphView::Graph edges(boost::num_vertices(graph));
  boost::breadth_first_search(graph, root, boost::visitor(CopyEdges(edges)));
  return edges;
}

// Returns the vertices through which every path from `root` to the sink goes; none if there is no
// path.
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

// Returns the values by which the vertices separate the graph, in forward order. A vertex whose
// node has no single such value is left out.
std::vector<Value*> separating_values(const GraphView& view,
                                      const std::set<GraphView::Vertex>& chosen) {
  const std::unordered_set<Node*> vertices(view.nodes.begin(), view.nodes.end());
  std::vector<Value*> separators;
  for (auto v : chosen) {
    // A node with several outputs separates by its first one, if other nodes of the forward read no
    // other: a layer norm's mean and deviation, for example, are read by its backward only.
    auto* node = view.node(v);
    bool reads_others = false;
    for (size_t i = 1; i < node->outputs().size(); ++i) {
      for (const auto& use : node->output(i)->uses()) {
        reads_others = reads_others || vertices.count(use.user) != 0;
      }
    }
    if (reads_others)
      continue;
    auto* single = node->outputs()[0];
    if (single->type()->kind() == c10::TypeKind::TensorType)
      separators.push_back(single);
  }
  return separators;
}

}  // namespace

GraphView view_forward(const JointGraph& joint, const std::vector<bool>& is_attribute) {
  ViewBuilder builder(joint, is_attribute);
  for (auto* node : joint.forward_nodes())
    builder.add_node(node);
  builder.connect_outputs();
  return std::move(builder.view());
}

std::vector<Value*> single_value_separators(const GraphView& view) {
  const auto dominators = dominators_of_sink(view, view.source);
  return separating_values(view, {dominators.begin(), dominators.end()});
}

std::vector<Value*> separators_by_source(const GraphView& view) {
  std::set<GraphView::Vertex> chosen;
  for (auto [edge, end] = boost::out_edges(view.source, view.graph); edge != end; ++edge) {
    const auto dominators = dominators_of_sink(view, boost::target(*edge, view.graph));
    chosen.insert(dominators.begin(), dominators.end());
  }
  return separating_values(view, chosen);
}

}  // namespace aten_recompute
