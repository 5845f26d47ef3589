#include "backend/pictures/draw_dot.h"

// GCC 12 takes what boost::optional holds, while it is empty, for a value that is read.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/graphviz.hpp>
#include <boost/graph/subgraph.hpp>

#include <array>
#include <cstdio>
#include <sstream>

namespace aten_recompute {
namespace {

using Attributes = DotGraph::Attributes;

// The properties that Boost's writer of graphs with clusters looks for.
using NodeProperty = boost::property<boost::vertex_attribute_t, Attributes>;
using EdgeProperty =
    boost::property<boost::edge_index_t, int, boost::property<boost::edge_attribute_t, Attributes>>;
using GraphProperty = boost::property<
    boost::graph_name_t, std::string,
    boost::property<boost::graph_graph_attribute_t, Attributes,
                    boost::property<boost::graph_vertex_attribute_t, Attributes,
                                    boost::property<boost::graph_edge_attribute_t, Attributes>>>>;
using ClusteredGraph =
    boost::subgraph<boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, NodeProperty,
                                          EdgeProperty, GraphProperty>>;

// Boost's writer does not quote the words of the language, which may be names of modules.
Attributes quotable(const Attributes& attributes) {
  Attributes result = attributes;
  for (auto& [key, value] : result) {
    for (const auto* word : {"node", "edge", "graph", "digraph", "subgraph", "strict"}) {
      if (value == word)
        value += ' ';
    }
  }
  return result;
}

}  // namespace

int DotGraph::add_cluster(int parent, Attributes attributes) {
  all_clusters_.push_back({parent, std::move(attributes)});
  return static_cast<int>(all_clusters_.size()) - 1;
}

int DotGraph::add_node(int cluster, Attributes attributes) {
  all_nodes_.push_back({cluster, std::move(attributes)});
  return static_cast<int>(all_nodes_.size()) - 1;
}

void DotGraph::add_edge(int from, int to, Attributes attributes) {
  all_edges_.push_back({from, to, std::move(attributes)});
}

std::string DotGraph::text() const {
  ClusteredGraph graph(all_nodes_.size());
  boost::get_property(graph, boost::graph_name) = "aten_recompute";
  boost::get_property(graph, boost::graph_graph_attribute) = quotable(graph_);
  boost::get_property(graph, boost::graph_vertex_attribute) = quotable(nodes_);
  boost::get_property(graph, boost::graph_edge_attribute) = quotable(edges_);
  std::vector<ClusteredGraph*> clusters;
  for (const auto& cluster : all_clusters_) {
    auto& parent = cluster.parent < 0 ? graph : *clusters[cluster.parent];
    auto& made = parent.create_subgraph();
    boost::get_property(made, boost::graph_name) = "cluster_" + std::to_string(clusters.size());
    boost::get_property(made, boost::graph_graph_attribute) = quotable(cluster.attributes);
    clusters.push_back(&made);
  }
  for (size_t i = 0; i < all_nodes_.size(); ++i) {
    boost::put(boost::get(boost::vertex_attribute, graph), i, quotable(all_nodes_[i].attributes));
    if (all_nodes_[i].cluster >= 0)
      boost::add_vertex(i, *clusters[all_nodes_[i].cluster]);
  }
  for (const auto& edge : all_edges_) {
    const auto added = boost::add_edge(edge.from, edge.to, graph).first;
    boost::put(boost::get(boost::edge_attribute, graph), added, quotable(edge.attributes));
  }
  std::ostringstream out;
  boost::write_graphviz(out, graph);
  return out.str();
}

std::string readable_bytes(int64_t bytes) {
  constexpr std::array kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto amount = static_cast<double>(bytes);
  size_t unit = 0;
  while (amount >= 1000.0 && unit + 1 < kUnits.size()) {
    amount /= 1024.0;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 || amount >= 100.0 ? "%.0f %s" : "%.1f %s",
                amount, kUnits[unit]);
  return text.data();
}

}  // namespace aten_recompute
