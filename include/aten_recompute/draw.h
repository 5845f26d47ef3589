// Pictures of what a lowered or enabled module runs.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>

namespace torch::jit {
struct Function;
}

namespace aten_recompute {

/// Draws what the last training step compiled, and writes it to `path`. The ending of its name
/// decides the format: ".svg" and ".png" need graphviz (its program `dot`), ".dot" is the text that
/// graphviz reads.
///
/// `what` is one of
///   "joint"     forward and backward beside each other: what is kept, dropped and computed again
///   "forward"   the forward, with what it keeps
///   "backward"  the backward, with what it finds in memory
///   "timeline"  the memory over the operators of a step, as predicted. It needs a profile, which
///               strategies segments, min_cut and budget make, and the option "profile"
///
/// Modules are clusters. In a graph of more than 60 operators, each layer is a single box.
/// `layer`, the path of a module such as "encoder.layers.3", shows what is inside of it. `method`
/// is the method to draw; it is needed where several have run.
///
/// The file is complete or not written at all. Throws std::invalid_argument, with one line, for an
/// argument that is wrong, a module that is neither lowered nor enabled, or one that has not run a
/// training step, and std::runtime_error where the file cannot be written or graphviz is not
/// installed.
void draw(const torch::jit::Module& module, const std::string& path,
          const std::string& what = "joint", const std::string& layer = "",
          const std::string& method = "");

/// Draws a function that is enabled. Throws as the function above does.
void draw(torch::jit::Function& function, const std::string& path,
          const std::string& what = "joint", const std::string& layer = "");

}  // namespace aten_recompute
