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
// lowered modules needs nothing from this header. Rules for operators of your own:
// register_rule.h, included here.
#pragma once

#include <aten_recompute/register_rule.h>

#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace aten_recompute {

/// Lowers `methods` of `module`. `options` is JSON as the README's table of strategies says; with
/// no strategy in it the environment variable RECOMPUTE decides, with neither nothing is
/// recomputed.
///
/// The result has the parameters, buffers and submodules of `module` under the same names; they are
/// the same tensors. Methods keep their signatures, default arguments included. `module` itself is
/// not changed and goes on working.
///
/// `layer_pattern`: a regular expression; submodules whose whole path matches are the layers that
/// strategies "layers" and "all" speak of. Empty: they are found.
///
/// Methods that are not named stay, unplanned. What is lowered already, `module` or modules inside
/// of it, is taken apart and planned anew with the rest.
///
/// Throws std::invalid_argument with one line that names what is wrong: an invalid option, a method
/// that does not exist.
torch::jit::Module lower(const torch::jit::Module& module, const std::string& options = "",
                         const std::vector<std::string>& methods = {"forward"},
                         const std::string& layer_pattern = "");

/// The module as it was before it was lowered, with the tensors and attributes that it has now;
/// also where lowered modules are anywhere inside of it. torch::jit::freeze takes the result, and
/// no lowered module. `module` is not changed; one in which nothing is lowered is returned itself.
torch::jit::Module unlower(const torch::jit::Module& module);

/// What has been compiled so far, as JSON: per method and specialisation the regions, their breaks
/// with reason and source line, and per region what is saved, what is recomputed, and which
/// operators have no gradient rule. `lowered` is a result of lower() or of PyTorch's own to_backend
/// route; throws std::invalid_argument for anything else.
std::string report(const torch::jit::Module& lowered);

/// The plans of the regions that have been compiled with a profile, as the JSON that strategy
/// `plan` follows again: {"plan": ...} in the options. Throws as report() does.
std::string plan(const torch::jit::Module& lowered);

/// The planning problems of the regions that have been compiled with a profile, each as the JSON
/// that tools/ and benchmarks/ read: nodes, values, bytes, seconds. Empty before the first call
/// that needs a gradient. Throws as report() does.
std::vector<std::string> problems(const torch::jit::Module& lowered);

}  // namespace aten_recompute
