// A region's forward as a Boost graph, and the values that separate it.
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

// Vertices are the forward nodes that a gradient passes through and that work on activations. An
// activation is computed, at any distance, from a region input that is not an attribute of the
// module: a batch, hidden states. No vertices are nodes that depend on parameters and constants
// alone (position embeddings, a transposed weight) and nodes that need no gradient (masks,
// targets), because edges from them would connect everything with everything. A vertex without a
// predecessor has an edge from the source.
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

// `is_attribute[i]`: region input i is a parameter or buffer of the module. Each node that makes an
// output of the region that requires grad has an edge to the sink.
GraphView view_forward(const JointGraph& joint, const std::vector<bool>& is_attribute);

// Returns the values through which every path from source to sink goes, in forward order; each is
// the output of another node. Keeping such a value separates what comes before it from what comes
// after. They are dominators of the sink, found with Boost's implementation of Lengauer and Tarjan
// (1979) in O(E log V).
std::vector<torch::jit::Value*> single_value_separators(const GraphView& view);

// Returns, in forward order, the values through which every path goes that begins at some one
// successor of the source. An encoder and a decoder that reads it in every layer have no separators
// in common, but each has its own. With one successor of the source, the result is that of
// single_value_separators().
std::vector<torch::jit::Value*> separators_by_source(const GraphView& view);

}  // namespace aten_recompute
