// Runs single passes on graphs, for people who write passes: to test, dump and combine them.
#pragma once

#include <ATen/core/ivalue.h>

#include <memory>
#include <string>
#include <vector>

#include "common/options.h"
#include "passes/manager/pass_manager.h"

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// What passes may need besides the graph. What a pass does not need is ignored.
struct NamedPassInput {
  c10::intrusive_ptr<c10::ivalue::Object> self;  // the module that the graph is a method of
  std::vector<c10::IValue> inputs;               // of a call, self not counted
  std::vector<bool> requires_grad;               // per input of a region; empty: all tensors
  Options options;
};

// Returns a line about what the pass does.
const char* summary_of(Pass pass);

// Runs the pass of this name, and returns the graphs that it leaves: `graph` itself where it
// changes that in place, or other graphs (extract: forward and backward).
//
// "differentiate" returns a joint graph (ir/joint_graph.h), whose node
// aten_recompute::backward_start has what a JointGraph has besides, as attributes. Passes for joint
// graphs need such a graph, with the node in it: copies of the graph have it, too. "plan" adds the
// schedule to that node, which "splice" carries out. "profile" gives each node the attributes
// "seconds" and "flops".
//
// Throws std::invalid_argument, in one line, if there is no such pass, or if it needs what was not
// given: a module, inputs, or a joint graph. Otherwise throws what the pass throws.
std::vector<std::shared_ptr<torch::jit::Graph>> run_by_name(
    const std::string& name, const std::shared_ptr<torch::jit::Graph>& graph,
    const NamedPassInput& input = {});

}  // namespace aten_recompute
