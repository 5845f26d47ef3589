// Assigns each node to a layer of the model.
#pragma once

#include <memory>
#include <string>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Gives each node inside a layer the attribute symbols::kLayer. Layers are numbered from 0 in the
// order in which they first run. The first of these that applies decides what a layer is:
//   1. The graph has aten_recompute::mark_layer operators: they do. The attribute is not set,
//      because value_layers() follows the operators.
//   2. `pattern` is not empty: a module whose whole path matches this regular expression.
//   3. Children of a container, a module whose children are called 0, 1, 2, ...: each child of the
//      first class that occurs at least twice begins a layer, so Sequential(Linear, ReLU, Linear,
//      ReLU) has two. If containers are nested, the outermost decides.
// Needs inline_modules() to have run. Throws std::invalid_argument for a pattern that is not a
// regular expression or matches no module.
void assign_layers(const std::shared_ptr<torch::jit::Graph>& graph, const std::string& pattern);

}  // namespace aten_recompute
