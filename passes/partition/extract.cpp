#include "passes/partition/extract.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/dead_code.h"
#include "ir/forward_values.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Gradient;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

using ValueMap = std::unordered_map<Value*, Value*>;

// Inserts a copy of the node and adds its outputs to `map`, which has the copies of its inputs.
void clone_into(Graph& graph, Node* node, ValueMap& map) {
  auto* clone = graph.insertNode(graph.createClone(node, [&](Value* v) { return map.at(v); }));
  for (size_t i = 0; i < node->outputs().size(); ++i)
    map[node->output(i)] = clone->output(i);
}

Value* add_input(Graph& graph, Value* like) {
  auto* input = graph.addInput()->setType(like->type());
  return input->copyMetadata(like);
}

// Builds `f` from the nodes before backward_start. Returns the copy of each of their values.
ValueMap build_forward(const JointGraph& joint, Gradient& gradient) {
  ValueMap in_f;
  for (size_t i = 0; i < joint.num_inputs; ++i) {
    auto* input = joint.graph->inputs()[i];
    in_f[input] = add_input(*gradient.f, input);
  }
  for (auto* node : joint.forward_nodes())
    clone_into(*gradient.f, node, in_f);
  for (size_t i = 0; i < joint.num_outputs; ++i)
    gradient.f->registerOutput(in_f.at(joint.graph->outputs()[i]));
  return in_f;
}

// Returns the forward values, region inputs and constants that the backward reads, each once, in
// the order of the reads. A gradient that is itself one of these counts as read.
std::vector<Value*> values_read(const JointGraph& joint, const ForwardValues& forward) {
  std::vector<Value*> reads;
  std::unordered_set<Value*> seen;
  const auto add = [&](Value* value) {
    if (seen.insert(value).second)
      reads.push_back(value);
  };
  for (auto* node : joint.backward_nodes()) {
    for (auto* value : forward.read_by(node))
      add(value);
  }
  const auto outputs = joint.graph->outputs();
  for (size_t i = joint.num_outputs; i < outputs.size(); ++i) {
    if (forward.is_computed(outputs[i]) || forward.is_region_input(outputs[i]))
      add(outputs[i]);
  }
  return reads;
}

// Makes values outputs of `f`.
class Outputs {
 public:
  explicit Outputs(Graph& f) : f_(f) {
    const auto outputs = f.outputs();
    for (size_t i = 0; i < outputs.size(); ++i)
      index_.emplace(outputs[i], i);
  }

  // Makes the value an output if it is none yet. Returns the index of that output.
  size_t add(Value* value) {
    const auto [found, is_new] = index_.emplace(value, f_.outputs().size());
    if (is_new)
      f_.registerOutput(value);
    return found->second;
  }

 private:
  Graph& f_;
  std::unordered_map<const Value*, size_t> index_;
};

// Adds the inputs of `df`: incoming gradients, region inputs, then captured values, which become
// outputs of `f`. Returns what each stands for.
ValueMap add_backward_inputs(const JointGraph& joint, const ForwardValues& forward,
                             const ValueMap& in_f, Gradient& gradient) {
  ValueMap in_df;
  const auto reads = values_read(joint, forward);
  const std::unordered_set<Value*> is_read(reads.begin(), reads.end());
  for (size_t k = 0; k < joint.vjp_outputs.size(); ++k) {
    auto* vjp = joint.graph->inputs()[joint.num_inputs + k];
    in_df[vjp] = add_input(*gradient.df, vjp);
    gradient.df_input_vjps.push_back(joint.vjp_outputs[k]);
  }
  for (size_t i = 0; i < joint.num_inputs; ++i) {
    auto* input = joint.graph->inputs()[i];
    if (is_read.count(input) == 0)
      continue;
    in_df[input] = add_input(*gradient.df, input);
    gradient.df_input_captured_inputs.push_back(i);
  }
  Outputs outputs(*gradient.f);
  for (auto* value : reads) {
    if (!forward.is_computed(value))
      continue;
    in_df[value] = add_input(*gradient.df, value);
    gradient.df_input_captured_outputs.push_back(outputs.add(in_f.at(value)));
  }
  return in_df;
}

// Builds `df` from the constants of the forward and the nodes after backward_start.
void build_backward(const JointGraph& joint, ValueMap& in_df, Gradient& gradient) {
  for (auto* node : joint.forward_nodes()) {
    if (node->kind() == c10::prim::Constant)
      clone_into(*gradient.df, node, in_df);
  }
  for (auto* node : joint.backward_nodes())
    clone_into(*gradient.df, node, in_df);
  for (size_t k = 0; k < joint.gradient_inputs.size(); ++k) {
    gradient.df->registerOutput(in_df.at(joint.graph->outputs()[joint.num_outputs + k]));
    gradient.df_output_vjps.push_back(joint.gradient_inputs[k]);
  }
}

// Removes copies that only the forward reads: nothing changes what it reads while it runs.
void remove_unsaved_snapshots(Graph& f) {
  const auto list = f.outputs();
  const std::unordered_set<const Value*> outputs(list.begin(), list.end());
  std::vector<Node*> unsaved;
  for (auto* node : f.nodes()) {
    if (node->kind() == symbols::kSnapshot && outputs.count(node->output()) == 0)
      unsaved.push_back(node);
  }
  for (auto* node : unsaved) {
    node->output()->replaceAllUsesWith(node->input());
    node->destroy();
  }
}

}  // namespace

Gradient extract(const JointGraph& joint) {
  Gradient gradient;
  gradient.f = std::make_shared<Graph>();
  gradient.df = std::make_shared<Graph>();
  gradient.f_real_outputs = joint.num_outputs;
  const auto in_f = build_forward(joint, gradient);
  auto in_df = add_backward_inputs(joint, ForwardValues(joint), in_f, gradient);
  build_backward(joint, in_df, gradient);
  remove_unsaved_snapshots(*gradient.f);
  remove_dead_code(gradient.f->block());
  torch::jit::EliminateDeadCode(gradient.df->block());
  return gradient;
}

}  // namespace aten_recompute
