// What the autograd nodes of regions have in common.
#pragma once

#include <torch/csrc/autograd/function.h>

namespace aten_recompute {

// Tells the autograd nodes that belong to a region from all others.
class RegionNode : public torch::autograd::Node {};

}  // namespace aten_recompute
