// Puts a stretch into one operator that runs slice by slice (runtime/sliced.h).
#pragma once

#include <cstdint>

#include "passes/region/row_stretch.h"

namespace aten_recompute {

// Replaces the nodes of `stretch` by one aten_recompute::sliced of `slices` slices and returns it.
// Nodes between those of the stretch that depend on it are moved behind it. The results are added
// to `known`. `nodes` is not valid afterwards.
torch::jit::Node* build_sliced(torch::jit::Graph& graph, const OrderedNodes& nodes,
                               const RowStretch& stretch, int64_t slices, KnownTensors& known);

}  // namespace aten_recompute
