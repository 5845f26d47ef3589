// What the autograd nodes of regions have in common.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <cstdint>

namespace aten_recompute {

// Tells the autograd nodes that belong to a region from all others.
class RegionNode : public torch::autograd::Node {
 public:
  RegionNode() = default;
  // Of the nodes that are ready, the engine runs the one with the highest number first.
  explicit RegionNode(uint64_t sequence_nr) : Node(sequence_nr) {}
};

}  // namespace aten_recompute
