// What lower() and enable() check of the method and the options that they are given.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <string>

namespace aten_recompute {

// Throws std::invalid_argument, with a hint at the method that may be meant, if the module has no
// such method. `verb` is what was to be done with it.
void require_method(const torch::jit::Module& module, const std::string& method,
                    const std::string& verb);

// Returns the spec with a plan file's content in place of its path, so that what was made from it
// does not depend on the file. Throws std::invalid_argument where the spec is none.
std::string self_contained(const std::string& spec);

}  // namespace aten_recompute
