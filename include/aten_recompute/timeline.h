// The memory of a training step, operator by operator and block by block.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>

namespace torch::jit {
struct Function;
}

namespace aten_recompute {

/// Returns, as JSON (docs/report.md, "Timelines"), what the last training step of each method does
/// to memory as predicted: the operators in their order with times and bytes alive, each block of
/// memory with its value, layer, source line, lifetime and address, and the same for a step in
/// which nothing is recomputed. Methods without a profile, or that have not run with gradients,
/// have no charts.
///
/// With `tradeoff`, the search for plans runs once more (docs/search.md; seconds for a large
/// model), and the plans that no other plan beats in both peak and time are listed.
///
/// Throws std::invalid_argument for a module or function that is neither lowered nor enabled.
std::string timeline(const torch::jit::Module& module, bool tradeoff = false);
std::string timeline(torch::jit::Function& function, bool tradeoff = false);

}  // namespace aten_recompute
