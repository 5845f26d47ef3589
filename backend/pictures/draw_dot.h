// Graphs in the language of graphviz, which Boost.Graph writes.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace aten_recompute {

// A directed graph with nested clusters. Nodes and clusters are known by the order in which they
// were added, which is also the order in which graphviz sees and paints them.
class DotGraph {
 public:
  using Attributes = std::map<std::string, std::string>;
  static constexpr int kNoCluster = -1;

  // Attributes of the graph, and those of every node and edge that does not have its own.
  DotGraph(Attributes graph, Attributes nodes, Attributes edges)
      : graph_(std::move(graph)), nodes_(std::move(nodes)), edges_(std::move(edges)) {}

  int add_cluster(int parent, Attributes attributes);
  int add_node(int cluster, Attributes attributes);
  void add_edge(int from, int to, Attributes attributes);

  std::string text() const;

 private:
  struct Node {
    int cluster;
    Attributes attributes;
  };
  struct Cluster {
    int parent;
    Attributes attributes;
  };
  struct Edge {
    int from;
    int to;
    Attributes attributes;
  };

  Attributes graph_;
  Attributes nodes_;
  Attributes edges_;
  std::vector<Node> all_nodes_;
  std::vector<Cluster> all_clusters_;
  std::vector<Edge> all_edges_;
};

// Returns "12.6 MiB".
std::string readable_bytes(int64_t bytes);

}  // namespace aten_recompute
