// Chooses how the forward of a region is compiled: with fused operators, or with the channels of
// its images last in memory.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "passes/region/region_graphs.h"

namespace aten_recompute {

// Returns whether a region may be compiled with the channels of its images last for these inputs:
// results need not be exact, and the program has not chosen layouts of its own.
bool may_change_layouts(const Options& options, const std::vector<c10::IValue>& inputs);

// Returns the layout in which images keep theirs, with fused operators if the options allow that
// and the fused operators have kernels for these inputs.
RegionLayout usual_layout(const RegionInput& input);

// Returns the forward that is compiled in this layout. It is the given graph itself where nothing
// has to change.
std::shared_ptr<torch::jit::Graph> forward_in(const RegionLayout& layout,
                                              const std::shared_ptr<torch::jit::Graph>& forward);

// Compiles a region in a layout; `forward` is what forward_in() returns for it.
using CompileInLayout = std::function<RegionGraphs(
    const RegionLayout& layout, const std::shared_ptr<torch::jit::Graph>& forward)>;

// Returns the region, compiled by `compile` in the layout whose plan takes less time. Where only
// one layout can be compiled, it is that one. Throws what `compile` throws.
RegionGraphs in_faster_layout(const RegionInput& input, const CompileInLayout& compile);

}  // namespace aten_recompute
