// Graphs as code that people can read.
#pragma once

#include <memory>
#include <string>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Returns the graph as TorchScript prints code (`module.code` in Python): one function of this
// name, a line for each operator. Operators of this library that have no schema, such as a tape,
// are printed as calls; one with a graph inside of it as a function of its own, before. The graph
// is not changed. Where TorchScript cannot print the graph, its text comes as a comment.
std::string code_of(const std::shared_ptr<torch::jit::Graph>& graph, const std::string& name);

}  // namespace aten_recompute
