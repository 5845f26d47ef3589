// Has a region's large operators run slice by slice where a budget cannot be kept otherwise.
#pragma once

#include <functional>
#include <memory>

#include "passes/region/region_graphs.h"

namespace aten_recompute {

// Compiles a region in the layout that fits it best (passes/region/choose_layout.h).
using CompileRegion = std::function<RegionGraphs(const RegionInput& input)>;
// Compiles it in this layout, whose forward has stretches that run slice by slice.
using CompileSliced =
    std::function<RegionGraphs(const RegionInput& input, const RegionLayout& layout)>;

// Returns what `compile` returns. Where that finds no plan for a memory budget, and the options
// allow results that differ in rounding (Options::exact is off), it tries `compile_sliced` with
// more and smaller slices of the forward until the budget is kept. Throws what `compile` throws if
// none helps; the error is that of the smallest peak.
RegionGraphs in_slices_if_needed(const RegionInput& input, const CompileRegion& compile,
                                 const CompileSliced& compile_sliced);

}  // namespace aten_recompute
