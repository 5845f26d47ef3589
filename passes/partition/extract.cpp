#include "passes/partition/extract.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "ir/forward_values.h"

namespace aten_recompute {
namespace {

using torch::jit::Gradient;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

using ValueMap = std::unordered_map<Value*, Value*>;

void clone_into(Graph& graph, Node* node, ValueMap& map) {
  auto* clone = graph.insertNode(graph.createClone(node, [&](Value* v) { return map.at(v); }));
  for (size_t i = 0; i < node->outputs().size(); ++i)
    map[node->output(i)] = clone->output(i);
}

Value* add_input(Graph& graph, Value* like) {
  auto* input = graph.addInput()->setType(like->type());
  return input->copyMetadata(like);
}

}  // namespace

Gradient extract(const JointGraph& joint) {
  const ForwardValues forward(joint);
  Gradient gradient;
  gradient.f = std::make_shared<Graph>();
  gradient.df = std::make_shared<Graph>();
  gradient.f_real_outputs = joint.num_outputs;

  // f: the nodes before backward_start.
  ValueMap in_f;
  for (size_t i = 0; i < joint.num_inputs; ++i) {
    auto* input = joint.graph->inputs()[i];
    in_f[input] = add_input(*gradient.f, input);
  }
  for (auto* node : joint.graph->nodes()) {
    if (node == joint.backward_start)
      break;
    clone_into(*gradient.f, node, in_f);
  }
  const auto outputs = joint.graph->outputs();
  for (size_t i = 0; i < joint.num_outputs; ++i) {
    gradient.f->registerOutput(in_f.at(outputs[i]));
  }

  // What df reads: everything its nodes, and gradients that are forward values, refer to.
  std::vector<Value*> reads;
  std::unordered_set<Value*> seen;
  auto read = [&](Value* value) {
    if (seen.insert(value).second)
      reads.push_back(value);
  };
  for (auto* node = joint.backward_start->next(); node != joint.graph->return_node();
       node = node->next()) {
    for (auto* value : forward.read_by(node))
      read(value);
  }
  for (size_t i = joint.num_outputs; i < outputs.size(); ++i) {
    if (forward.is_computed(outputs[i]) || forward.is_region_input(outputs[i]))
      read(outputs[i]);
  }

  ValueMap in_df;
  for (size_t k = 0; k < joint.vjp_outputs.size(); ++k) {
    auto* vjp = joint.graph->inputs()[joint.num_inputs + k];
    in_df[vjp] = add_input(*gradient.df, vjp);
    gradient.df_input_vjps.push_back(joint.vjp_outputs[k]);
  }
  for (size_t i = 0; i < joint.num_inputs; ++i) {
    auto* input = joint.graph->inputs()[i];
    if (seen.count(input) == 0)
      continue;
    in_df[input] = add_input(*gradient.df, input);
    gradient.df_input_captured_inputs.push_back(i);
  }
  for (auto* value : reads) {
    if (!forward.is_computed(value))
      continue;
    in_df[value] = add_input(*gradient.df, value);
    const auto f_outputs = gradient.f->outputs();
    const auto found = std::find(f_outputs.begin(), f_outputs.end(), in_f.at(value));
    gradient.df_input_captured_outputs.push_back(
        static_cast<size_t>(std::distance(f_outputs.begin(), found)));
    if (found == f_outputs.end())
      gradient.f->registerOutput(in_f.at(value));
  }

  // df: constants of the forward that it reads, then the nodes after backward_start.
  for (auto* node : joint.graph->nodes()) {
    if (node == joint.backward_start)
      break;
    if (node->kind() == c10::prim::Constant)
      clone_into(*gradient.df, node, in_df);
  }
  for (auto* node = joint.backward_start->next(); node != joint.graph->return_node();
       node = node->next()) {
    clone_into(*gradient.df, node, in_df);
  }
  for (size_t k = 0; k < joint.gradient_inputs.size(); ++k) {
    gradient.df->registerOutput(in_df.at(outputs[joint.num_outputs + k]));
    gradient.df_output_vjps.push_back(joint.gradient_inputs[k]);
  }
  torch::jit::EliminateDeadCode(gradient.f->block());
  torch::jit::EliminateDeadCode(gradient.df->block());
  return gradient;
}

}  // namespace aten_recompute
