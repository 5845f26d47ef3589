// Inlines every call, and remembers which module each node came from.
#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Inlines methods and functions. Unlike LibTorch's Inline, each node from a submodule's method gets
// that module's path from the root ("encoder.layers.3") as attribute symbols::kModulePath; nodes of
// functions get their caller's. Calls that cannot be inlined (interfaces, ignored Python methods)
// stay. The graph's first input is the root module.
void inline_modules(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
