// aten_recompute: train TorchScript modules in less memory.
//
//   #include <aten_recompute/aten_recompute.h>
//   auto model = torch::jit::load("model.pt");
//   auto lowered = aten_recompute::lower(model, R"({"strategy": "segments"})");
//   auto loss = lowered.forward({tokens, targets}).toTensor();
//   loss.backward();
//   lowered.save("lowered.pt");  // torch::jit::load reads it wherever this library is loaded
//
// Linking the library (or opening it with dlopen) registers the backend; a program that only loads
// lowered modules does not need this header. Further headers are included here: register_rule.h
// declares gradient rules for your own operators, estimate.h predicts what a step takes, and
// one_line.h shortens LibTorch's errors.
#pragma once

#include <aten_recompute/estimate.h>
#include <aten_recompute/one_line.h>
#include <aten_recompute/register_rule.h>
#include <aten_recompute/register_shape.h>

#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace aten_recompute {

/// Lowers `methods` of `module` and returns the lowered module. `options` is JSON; docs/options.md
/// lists the options. If it names no strategy, the environment variable RECOMPUTE decides; with
/// neither, nothing is recomputed.
///
/// The result has the parameters, buffers and submodules of `module` under the same names, and
/// shares their tensors. Methods keep their signatures, including default arguments. `module`
/// itself is not changed and can still be used.
///
/// `layer_pattern` is a regular expression (ECMAScript). Submodules whose whole path matches are
/// the layers of the strategies "layers" and "all". If it is empty, the layers are found from the
/// module hierarchy.
///
/// Methods that are not named are kept and run without a plan. If `module` or a submodule is
/// lowered already, it is unlowered first and lowered again with the rest.
///
/// Throws std::invalid_argument with one line that names the error: an invalid option, a method
/// that does not exist, or a pattern that matches no module that a method runs.
torch::jit::Module lower(const torch::jit::Module& module, const std::string& options = "",
                         const std::vector<std::string>& methods = {"forward"},
                         const std::string& layer_pattern = "");

/// Returns the module as it was before it was lowered, with the tensors and attributes that it has
/// now; lowered submodules are unlowered, too. torch::jit::freeze accepts the result but no lowered
/// module. `module` is not changed. If nothing in it is lowered, `module` itself is returned.
torch::jit::Module unlower(const torch::jit::Module& module);

/// Returns what has been compiled so far, as JSON (docs/report.md): for each method and
/// specialisation its regions, the breaks between them with reason and source line, and for each
/// region what is saved, what is recomputed, and which operators have no gradient rule. `lowered`
/// is a result of lower() or of PyTorch's own to_backend(). Throws std::invalid_argument for any
/// other module.
std::string report(const torch::jit::Module& lowered);

/// Returns the plans of the regions that have been compiled with a profile, as JSON
/// (docs/report.md). The option {"plan": ...} makes lower() follow it. Throws as report() does.
std::string plan(const torch::jit::Module& lowered);

/// Returns the planning problems of the regions that have been compiled with a profile, one JSON
/// text each (docs/report.md): nodes, values, sizes in bytes, times in seconds. The result is empty
/// before the first call that needs a gradient. Throws as report() does.
std::vector<std::string> problems(const torch::jit::Module& lowered);

/// Gives back the memory that lowered modules keep between steps (option "arena"), as before a
/// validation or at the end of training. The next step takes it anew. Memory of steps that are not
/// over, because their backward may still come, stays.
void release_memory();

}  // namespace aten_recompute
