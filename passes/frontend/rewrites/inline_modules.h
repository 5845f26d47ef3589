// Inlines every call, and notes which module each node came from.
#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Inlines methods and functions. Unlike LibTorch's Inline, it gives each node from a submodule's
// method that module's path from the root ("encoder.layers.3") as attribute symbols::kModulePath;
// nodes of functions get their caller's path. Calls that cannot be inlined (interfaces, ignored
// Python methods) stay. Needs the root module to be the graph's first input.
void inline_modules(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
