// Single passes of aten_recompute, for people who write passes: to test, dump and combine them.
//
//   auto joint = aten_recompute::passes::run("differentiate", graph).front();
//   aten_recompute::passes::run("plan", joint, {.options = R"({"strategy": "all"})"});
//   aten_recompute::passes::run("splice", joint);
//   torch::jit::testing::FileCheck().check("_recomputed")->run(*joint);
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute::passes {

/// Inputs of a pass besides the graph. A pass ignores those that it does not need.
struct Arguments {
  /// The module that the graph is a method of; the graph's first input is the module then.
  std::optional<torch::jit::Module> module{};
  /// The inputs of a call of the method, or of the region for passes that work on one.
  std::vector<c10::IValue> inputs{};
  /// For "differentiate", per input of the graph: whether it requires grad. If empty, all tensors
  /// do.
  std::vector<bool> requires_grad{};
  /// The options of "plan", as JSON: docs/options.md.
  std::string options{};
};

/// Returns name and summary of each pass, in the order in which lower() runs them.
std::vector<std::pair<std::string, std::string>> names();

/// Runs the pass and returns the graphs that it leaves: `graph` itself where the pass changes that,
/// otherwise other graphs. "differentiate" returns a joint graph of forward and backward, which the
/// passes from "hoist_metadata" to "extract" need; "plan" writes a schedule into it, "splice"
/// carries that out, and "extract" returns forward and backward.
///
/// Throws std::invalid_argument, with one line, if there is no such pass, or if it needs a module,
/// inputs or a joint graph that it is not given.
std::vector<std::shared_ptr<torch::jit::Graph>> run(const std::string& name,
                                                    const std::shared_ptr<torch::jit::Graph>& graph,
                                                    const Arguments& arguments = {});

}  // namespace aten_recompute::passes
