// aten_recompute: train TorchScript modules in less memory.
//
//   #include <aten_recompute/aten_recompute.h>
//   auto model = torch::jit::load("model.pt");
//   auto lowered = aten_recompute::lower(model, R"({"strategy": "segments"})");
//   auto loss = lowered.forward({tokens, targets}).toTensor();
//   loss.backward();
//   lowered.save("lowered.pt");  // torch::jit::load reads it wherever this library is loaded
//
// or, without a second module:
//
//   aten_recompute::enable(model, R"({"strategy": "segments"})");
//
// Linking the library (or opening it with dlopen) registers the backend; a program that only loads
// lowered modules does not need this header. Further headers are included here: register_rule.h
// declares gradient rules for your own operators, draw.h draws pictures, errors.h declares the
// classes of errors, estimate.h predicts what a step takes, logs.h says what is logged, one_line.h
// shortens LibTorch's errors, and timeline.h tells the memory of a step.
#pragma once

#include <aten_recompute/draw.h>
#include <aten_recompute/errors.h>
#include <aten_recompute/estimate.h>
#include <aten_recompute/logs.h>
#include <aten_recompute/one_line.h>
#include <aten_recompute/register_rule.h>
#include <aten_recompute/register_shape.h>
#include <aten_recompute/timeline.h>

#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace torch::jit {
struct CompilationUnit;
struct Function;
}  // namespace torch::jit

namespace aten_recompute {

/// Returns the version of this library, such as "0.2.0".
const char* version();

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
/// Throws std::invalid_argument with one line that names the error: an InvalidOptionError (a
/// pattern that matches no module that a method runs is one, too), or a NoSuchMethodError.
torch::jit::Module lower(const torch::jit::Module& module, const std::string& options = "",
                         const std::vector<std::string>& methods = {"forward"},
                         const std::string& layer_pattern = "");

/// Returns the module as it was before it was lowered, with the tensors and attributes that it has
/// now; lowered submodules are unlowered, too. torch::jit::freeze accepts the result but no lowered
/// module. `module` is not changed. If nothing in it is lowered, `module` itself is returned.
torch::jit::Module unlower(const torch::jit::Module& module);

/// Makes `methods` of `module` run planned where they are: the module keeps its identity, its class
/// and its code. `options` and `layer_pattern` are those of lower(). What save() writes is plain
/// TorchScript, which loads where this library is not. Other objects of the class, and copies, run
/// as before. Methods that call the enabled ones run them planned, too. A module that is enabled
/// already is enabled anew with these options.
///
/// A module that is gone keeps its memory until the next enable() or release_memory(), unless it
/// was disabled before.
///
/// No other thread may run the methods, or methods that call them, during this call.
///
/// Throws std::invalid_argument as lower() does, or where the module or one inside of it is
/// lowered; nothing is enabled then.
void enable(const torch::jit::Module& module, const std::string& options = "",
            const std::vector<std::string>& methods = {"forward"},
            const std::string& layer_pattern = "");

/// Enables a function in place of a module. Functions of `unit` that call it run it planned, too;
/// without `unit`, those that have run before keep its code as it was.
void enable(torch::jit::Function& function, const std::string& options = "",
            torch::jit::CompilationUnit* unit = nullptr);

/// Undoes enable(): the module's methods, or the function, run as before, by the same graphs.
/// Returns whether anything was enabled.
bool disable(const torch::jit::Module& module);
bool disable(torch::jit::Function& function, torch::jit::CompilationUnit* unit = nullptr);

/// Returns whether enable() was called for the module or the function, and disable() was not.
bool is_enabled(const torch::jit::Module& module);
bool is_enabled(torch::jit::Function& function);

/// Returns what has been compiled so far, as JSON (docs/report.md): for each method and
/// specialization its regions, the breaks between them with reason and source line, and for each
/// region what is saved, what is recomputed, and which operators have no gradient rule. `module` is
/// a result of lower() or of PyTorch's own to_backend(), or enabled. Throws std::invalid_argument
/// for any other module or function.
std::string report(const torch::jit::Module& module);
std::string report(torch::jit::Function& function);

/// Returns the plans of the regions that have been compiled with a profile, as JSON
/// (docs/report.md). The option {"plan": ...} makes lower() and enable() follow it. Throws as
/// report() does.
std::string plan(const torch::jit::Module& module);
std::string plan(torch::jit::Function& function);

/// Returns the planning problems of the regions that have been compiled with a profile, one JSON
/// text each (docs/report.md): nodes, values, sizes in bytes, times in seconds. The result is empty
/// before the first call that needs a gradient. Throws as report() does.
std::vector<std::string> problems(const torch::jit::Module& module);
std::vector<std::string> problems(torch::jit::Function& function);

/// Gives back the memory that lowered modules keep between steps (option "arena"), as before a
/// validation or at the end of training. The next step takes it anew. Memory of steps that are not
/// over, because their backward may still come, stays.
void release_memory();

}  // namespace aten_recompute
