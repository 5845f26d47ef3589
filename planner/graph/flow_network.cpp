#include "planner/graph/flow_network.h"

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>

#include <stdexcept>

namespace aten_recompute {
namespace {

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::bidirectionalS>;

struct Flow {
  int64_t capacity = 0;
  int64_t residual = 0;
  Traits::edge_descriptor reverse;
};

using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS,
                                    boost::no_property, Flow>;

// Boost needs the reverse of every edge in the graph, with a capacity of its own, which is 0.
void add_both_ways(Graph& graph, size_t from, size_t to, int64_t capacity) {
  const auto edge = boost::add_edge(from, to, graph).first;
  const auto reverse = boost::add_edge(to, from, graph).first;
  graph[edge] = {capacity, 0, reverse};
  graph[reverse] = {0, 0, edge};
}

}  // namespace

void FlowNetwork::add_edge(size_t from, size_t to, int64_t capacity) {
  edges_.push_back({from, to, capacity});
}

void FlowNetwork::add_uncuttable_edge(size_t from, size_t to) {
  uncuttable_.push_back({from, to, 0});
}

std::vector<bool> FlowNetwork::sink_side() const {
  Graph graph(num_vertices_);
  // This is more than all other edges can carry together.
  int64_t infinite = 1;
  for (const auto& edge : edges_) {
    add_both_ways(graph, edge.from, edge.to, edge.capacity);
    infinite += edge.capacity;
  }
  for (const auto& edge : uncuttable_)
    add_both_ways(graph, edge.from, edge.to, infinite);
  const auto flow = boost::boykov_kolmogorov_max_flow(
      graph, boost::get(&Flow::capacity, graph), boost::get(&Flow::residual, graph),
      boost::get(&Flow::reverse, graph), boost::get(boost::vertex_index, graph), kSource, kSink);
  if (flow >= infinite)
    throw std::logic_error("aten_recompute: the flow network has no finite cut");

  // Vertices from which the sink can still be reached.
  std::vector<bool> on_sink_side(num_vertices_, false);
  std::vector<size_t> found{kSink};
  on_sink_side[kSink] = true;
  while (!found.empty()) {
    const auto vertex = found.back();
    found.pop_back();
    for (auto [edge, end] = boost::in_edges(vertex, graph); edge != end; ++edge) {
      const auto from = boost::source(*edge, graph);
      if (on_sink_side[from] || graph[*edge].residual == 0)
        continue;
      on_sink_side[from] = true;
      found.push_back(from);
    }
  }
  return on_sink_side;
}

}  // namespace aten_recompute
