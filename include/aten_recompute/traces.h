// The memory of a training step in the formats of viewers.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>

namespace torch::jit {
struct Function;
}

namespace aten_recompute {

/// Returns the last training step of each method as JSON that https://ui.perfetto.dev and
/// chrome://tracing open: forward, recomputation and backward as slices by layer and operator, and
/// the memory as a counter, for the step as planned and for one in which nothing is recomputed.
/// Without times of operators, each takes a microsecond.
///
/// Methods without a profile, or that have not run with gradients, are left out; throws
/// std::invalid_argument where that leaves nothing, and for a module or function that is neither
/// lowered nor enabled.
std::string perfetto(const torch::jit::Module& module);
std::string perfetto(torch::jit::Function& function);

/// Returns the same steps in the format of torch.cuda.memory._snapshot(): the bytes of a pickle of
/// protocol 4 that https://pytorch.org/memory_viz and `python -m torch.cuda._memory_viz` open.
/// Device 0 is the step as planned, 1 the one in which nothing is recomputed; where the memory of
/// steps has planned addresses, what operators allocate there is one device more. Throws as
/// perfetto() does.
std::string memory_viz(const torch::jit::Module& module);
std::string memory_viz(torch::jit::Function& function);

}  // namespace aten_recompute
