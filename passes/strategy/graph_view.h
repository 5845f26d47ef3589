// A region's forward as Boost.Graph sees it.
#pragma once

#include <boost/graph/adjacency_list.hpp>

#include <cstddef>
#include <vector>

#include "ir/joint_graph.h"

namespace torch::jit {
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// Vertices are the forward nodes that a gradient passes through and that work on activations:
// values computed, at any distance, from a region input that is not an attribute of the module (a
// batch, hidden states). What depends on parameters and constants alone (position embeddings, a
// transposed weight) is no vertex, nor is what needs no gradient (masks, targets): an edge from it
// would connect everything with everything. A vertex without a predecessor has an edge from the
// source.
//
//   tokens   W_emb           source
//       \    /                 |
//     embedding            embedding
//      |      \       ==>     |     \        (tensors only: sizes are no edges)
//      |    layer_norm        |   layer_norm
//      |      /               |     /
//        add                    add
//                                |
//                              sink
struct GraphView {
  using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::bidirectionalS>;
  using Vertex = boost::graph_traits<Graph>::vertex_descriptor;

  Graph graph;
  Vertex source = 0;
  Vertex sink = 1;
  std::vector<torch::jit::Node*> nodes;  // nodes[v - 2] is vertex v; in forward order
  torch::jit::Node* node(Vertex v) const { return nodes[v - 2]; }
};

// `is_attribute[i]`: region input i was read from the module (parameter or buffer). The sink stands
// behind every output that requires grad.
GraphView view_forward(const JointGraph& joint, const std::vector<bool>& is_attribute);

// Values through which every path from source to sink goes, in forward order: one output of one
// node each. Keeping such a value separates what comes before it from what comes after. Dominators
// of the sink, by Lengauer and Tarjan (1979), Boost's implementation; O(E log V).
std::vector<torch::jit::Value*> single_value_separators(const GraphView& view);

// The same for each vertex at the source, and the paths that begin there: an encoder and a decoder
// that reads it in every layer have no separators in common, but each has its own. In forward
// order; where one vertex alone stands at the source, the same as single_value_separators().
std::vector<torch::jit::Value*> separators_by_source(const GraphView& view);

}  // namespace aten_recompute
