// Which layer of the model a node belongs to.
#pragma once

#include <memory>
#include <string>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Gives nodes inside of a layer attribute symbols::kLayer, numbered from 0 in the order in which
// layers first run. Layers are:
//   - where the graph has aten_recompute::mark_layer operators, what those say, and nothing else
//   (the
//     attribute is then not set: value_layers() follows the operators);
//   - with a `pattern`: the modules whose whole path matches this regular expression;
//   - otherwise the children of containers (modules whose children are called 0, 1, 2, ...) of
//   which
//     at least two are of one class: each child of the first such class begins a layer, so that
//     Sequential(Linear, ReLU, Linear, ReLU) has two. Of nested containers the outermost counts.
// Needs: inline_modules() has run. Throws std::invalid_argument for a pattern that is no regular
// expression or matches no module.
void assign_layers(const std::shared_ptr<torch::jit::Graph>& graph, const std::string& pattern);

}  // namespace aten_recompute
