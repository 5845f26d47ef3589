// Calls the passes that prepare a method, in order: up to its regions, which passes/pipeline.h
// compiles.
#pragma once

#include <memory>
#include <string>

#include "passes/prepared_method.h"

namespace aten_recompute {

// Compiles a method up to its regions. Where control flow or containers would split it into
// several, it is compiled for the path that this call takes (passes/frontend/path/record_path.h).
PreparedMethod prepare_method(const MethodInput& input);

// Returns a copy of the method's graph with the methods that it calls in it, for a call that runs
// without a plan.
std::shared_ptr<torch::jit::Graph> inline_method(torch::jit::Graph& graph);

// Throws std::invalid_argument if the pattern (Options::layer_pattern) matches no module that the
// method calls.
void check_layer_pattern(torch::jit::Graph& method, const std::string& pattern);

}  // namespace aten_recompute
