// Finds the stretches of a method that are differentiated ahead of time.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace torch::jit {
struct Block;
struct Graph;
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// A node that stays outside of every region and ends the one before it.
struct RegionBreak {
  std::string node;  // "aten::append"
  std::string reason;
  std::string location;  // "model.py:12", empty where unknown
};

struct Regions {
  std::vector<torch::jit::Node*> nodes;  // aten_recompute::DifferentiableGraph, in order
  std::vector<RegionBreak> breaks;
};

// Replaces each maximal straight-line stretch of functional nodes by one node
// aten_recompute::DifferentiableGraph with the stretch as attr::Subgraph; attribute
// symbols::kIsAttribute has one int per input: 1 where the value was read from the module.
//
//   Inside a region, besides ordinary operators: control flow without tensor outputs (size checks
//   that may raise) and in-place updates of buffers that nothing in the graph reads as a tensor
//   (num_batches_tracked.add_(1)). Both run in the forward only.
//   Around it, under ordinary autograd: views of the region's values that the caller sees (so that
//   in-place operators on them behave as in eager), tuples, lists and dicts.
//
// Blocks of prim::If and prim::Loop nodes outside of regions are treated in turn.
// Needs: prepare() has run.
Regions form_regions(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
