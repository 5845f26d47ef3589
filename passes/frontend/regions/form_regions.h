// Finds the stretches of a method that can be differentiated ahead of time.
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

// A node that stays outside every region and ends the one before it.
struct RegionBreak {
  std::string node;  // "aten::append"
  std::string reason;
  std::string location;  // "model.py:12"; empty if unknown
};

struct Regions {
  std::vector<torch::jit::Node*> nodes;  // aten_recompute::DifferentiableGraph, in order
  std::vector<RegionBreak> breaks;
};

// Replaces each maximal straight-line stretch of functional nodes by one node
// aten_recompute::DifferentiableGraph with the stretch as attr::Subgraph. Its attribute
// symbols::kIsAttribute has one int per input: 1 if the value is read from the module.
//
//   %h = aten::mul(%x, %w)            %y = aten_recompute::DifferentiableGraph(%x, %w)
//   %y = aten::relu(%h)         ==>
//   prim::Print(%y)                   prim::Print(%y)
//
// A region also contains control flow without tensor outputs (size checks that may raise), and
// in-place updates of buffers that nothing in the graph reads as a tensor
// (num_batches_tracked.add_(1)). Both run in the forward only. Views of a region's values that the
// caller sees (in-place operators on them must behave as in eager PyTorch), tuples, lists and dicts
// are made outside, under ordinary autograd.
//
// Blocks of prim::If and prim::Loop nodes outside regions get regions of their own.
// Needs prepare() to have run.
Regions form_regions(const std::shared_ptr<torch::jit::Graph>& graph);

// The same for a recorded path. Blocks of autocast are part of regions then, for insert_casts(),
// where no region begins or ends within one. Gradients that the method asks for are, too, for
// expand_gradients(), where all that they pass through is in the region. Replaces the graph.
Regions form_regions_of_path(std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
