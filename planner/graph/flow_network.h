// A flow network and its minimum cut, computed by Boost.Graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace aten_recompute {

class FlowNetwork {
 public:
  static constexpr size_t kSource = 0;
  static constexpr size_t kSink = 1;

  size_t add_vertex() { return num_vertices_++; }
  void add_edge(size_t from, size_t to, int64_t capacity);
  // Adds an edge of infinite capacity.
  void add_uncuttable_edge(size_t from, size_t to);

  // Returns, per vertex, whether it is on the sink's side of a minimum cut. Among several minimum
  // cuts it is the one nearest to the sink, with the fewest vertices on the sink's side. The
  // maximum flow is computed by Boost's implementation of Boykov and Kolmogorov (2004).
  //
  // Throws std::logic_error if a path of uncuttable edges leads from source to sink.
  std::vector<bool> sink_side() const;

 private:
  struct Edge {
    size_t from;
    size_t to;
    int64_t capacity;
  };

  size_t num_vertices_ = 2;
  std::vector<Edge> edges_;
  std::vector<Edge> uncuttable_;
};

}  // namespace aten_recompute
