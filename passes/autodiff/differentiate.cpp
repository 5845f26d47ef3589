#include "passes/autodiff/differentiate.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/jit_log.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "ir/dead_code.h"
#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/autodiff/apply_rule.h"
#include "passes/autodiff/broadcast_gradients.h"
#include "passes/autodiff/fold_known.h"
#include "passes/autodiff/gradient_sums.h"
#include "passes/autodiff/hoist_metadata.h"
#include "passes/autodiff/list_gradients.h"
#include "passes/autodiff/not_differentiable.h"
#include "passes/autodiff/put_on_tape.h"
#include "passes/manager/pass_manager.h"
#include "rules/registry.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
namespace prim = c10::prim;

// Where a forward node comes from. The nodes of its backward are marked with this, for errors and
// profilers.
class Origin {
 public:
  explicit Origin(const Node* node)
      : op_(qualified_operator_name(node)), source_(node->sourceRange()) {
    if (node->hasAttribute(symbols::kModulePath))
      module_path_ = node->s(symbols::kModulePath);
  }

  void mark(Node* added) const {
    if (added->kind() == prim::Constant)
      return;
    added->setSourceRange(source_);
    added->s_(symbols::kBackwardOf, op_);
    if (!module_path_.empty())
      added->s_(symbols::kModulePath, module_path_);
  }

 private:
  std::string op_;
  std::string module_path_;
  torch::jit::SourceRange source_;
};

// Inserts the backward of one forward node.
using InsertBackward = std::function<void()>;

struct BackwardStep {
  Origin origin;
  InsertBackward insert;
};

// Returns whether a gradient passes through the node.
bool is_differentiated(Node* node, const GradientSums& sums) {
  const auto inputs = node->inputs();
  const auto outputs = node->outputs();
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](auto* input) { return sums.requires_grad(input); }) &&
         node->blocks().empty() && !mutates_an_argument(node) && !is_non_differentiable(node) &&
         std::any_of(outputs.begin(), outputs.end(),
                     [](const auto* output) { return contains_tensor(*output->type()); });
}

InsertBackward prepare_rule(Node* node, const Rule& rule, JointGraph& joint, GradientSums& sums) {
  auto& operators = joint.operators;
  (rule.is_users ? operators.by_user_rule : operators.by_rule)
      .push_back(qualified_operator_name(node));
  return [applied = apply_rule_forward(node, rule, sums, joint.requires_grad), &sums] {
    insert_rule_backward(applied, sums);
  };
}

InsertBackward prepare_tape(Node* node, JointGraph& joint, GradientSums& sums) {
  joint.operators.on_tape.push_back(qualified_operator_name(node));
  return [tape = put_on_tape(node, sums), &sums] { insert_tape_backward(tape, sums); };
}

// Marks the outputs of `node` that require grad, and replaces the node where its rule or the tape
// says so. Returns what inserts its backward; an empty function where there is nothing to insert.
InsertBackward prepare_node(Node* node, JointGraph& joint, GradientSums& sums) {
  if (is_broadcast(node)) {
    sums.require_tensor(node->output());
    return {};
  }
  if (unpacks_broadcast(node)) {
    joint.operators.by_rule.emplace_back("aten::broadcast_tensors");
    require_broadcast_results(node, sums);
    return [node, &sums] { insert_broadcast_backward(node, sums); };
  }
  if (is_list_operator(node)) {
    for (auto* output : node->outputs())
      sums.require_tensor(output);
    return [node, &sums] { insert_list_backward(node, sums); };
  }
  if (is_cast(node) && is_tensor_type(*node->output()->type())) {
    sums.require_tensor(node->output());
    sums.share_gradient(node->output(), node->input(0));
    return {};
  }
  if (is_cast(node) || is_marker(node)) {
    sums.require_tensor(node->output());
    return [in = node->input(0), out = node->output(), &sums] {
      if (auto* gradient = sums.gradient_of(out))
        sums.add(in, gradient);
    };
  }
  if (const auto* rule = find_rule(node); rule != nullptr && !rule->is_composition())
    return prepare_rule(node, *rule, joint, sums);
  return prepare_tape(node, joint, sums);
}

// Replaces a composed operator by its parts, each of which has a gradient of its own. Returns an
// empty list if `node` is none.
std::vector<Node*> replace_composed(Node* node, const GradientSums& sums) {
  const auto* rule = find_rule(node);
  if (rule == nullptr || !rule->is_composition())
    return {};
  return replace_by_parts(node, *rule, sums);
}

// Prepares each node of the forward. Returns the backward of each, in the order of the forward.
std::vector<BackwardStep> prepare_forward(JointGraph& joint, GradientSums& sums) {
  std::vector<BackwardStep> steps;
  const std::vector<Node*> nodes(joint.graph->nodes().begin(), joint.graph->nodes().end());
  for (auto* node : nodes) {
    if (!is_differentiated(node, sums))
      continue;
    const Origin origin(node);  // the node may be gone afterward
    const auto name = qualified_operator_name(node);
    const auto num_rules = joint.operators.by_rule.size();
    auto parts = replace_composed(node, sums);
    const bool is_composed = !parts.empty();
    if (!is_composed)
      parts = {node};
    for (auto* part : parts) {
      if (!is_differentiated(part, sums))
        continue;
      if (auto insert = prepare_node(part, joint, sums))
        steps.push_back({origin, std::move(insert)});
    }
    if (is_composed) {  // it counts as one operator
      joint.operators.by_rule.resize(num_rules);
      joint.operators.by_rule.push_back(name);
    }
  }
  return steps;
}

// Appends backward_start, and adds an input for the gradient of each output that has one.
void start_backward(JointGraph& joint, const std::vector<bool>& vjp_defined, GradientSums& sums) {
  auto& graph = *joint.graph;
  joint.backward_start = graph.appendNode(graph.create(symbols::kBackwardStart, /*num_outputs=*/0));
  for (size_t i = 0; i < joint.num_outputs; ++i) {
    auto* output = graph.outputs()[i];
    const bool differentiable = sums.requires_grad(output) && is_tensor_type(*output->type());
    if (!differentiable && sums.requires_grad(output))
      throw NotDifferentiable("a list of tensors leaves it");
    joint.output_requires_grad.push_back(differentiable);
    if (!differentiable || !vjp_defined[i])
      continue;
    joint.vjp_outputs.push_back(i);
    auto* vjp = graph.addInput()->setType(c10::TensorType::get());
    vjp->setDebugName("grad_" + std::to_string(i));
    sums.add(output, vjp);
  }
}

// Inserts the backward of each step, the last step's first.
void insert_backward(Graph& graph, const std::vector<BackwardStep>& steps) {
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    auto* before = graph.return_node()->prev();
    step->insert();
    for (auto* added = before->next(); added != graph.return_node(); added = added->next())
      step->origin.mark(added);
  }
}

// Makes the gradients of the region's inputs outputs of the graph.
void register_gradients(JointGraph& joint, const std::vector<bool>& requires_grad,
                        const GradientSums& sums) {
  for (size_t i = 0; i < joint.num_inputs; ++i) {
    auto* gradient = requires_grad[i] ? sums.gradient_of(joint.graph->inputs()[i]) : nullptr;
    if (gradient == nullptr)
      continue;
    joint.gradient_inputs.push_back(i);
    joint.graph->registerOutput(gradient);
  }
}

JointGraph build_joint_graph(const std::shared_ptr<Graph>& graph,
                             const std::vector<bool>& requires_grad,
                             const std::vector<bool>& vjp_defined) {
  JointGraph joint;
  joint.graph = graph;
  joint.num_inputs = graph->inputs().size();
  joint.num_outputs = graph->outputs().size();
  GradientSums sums(*graph);
  for (size_t i = 0; i < joint.num_inputs; ++i) {
    if (requires_grad[i])
      sums.require(graph->inputs()[i]);
  }
  const auto steps = prepare_forward(joint, sums);
  start_backward(joint, vjp_defined, sums);
  insert_backward(*graph, steps);
  register_gradients(joint, requires_grad, sums);
  for (const auto* value : sums.required())
    joint.requires_grad.insert(value->unique());
  return joint;
}

}  // namespace

JointGraph differentiate(const std::shared_ptr<Graph>& forward,
                         const std::vector<bool>& requires_grad,
                         const std::vector<bool>& vjp_defined) {
  auto joint = build_joint_graph(forward->copy(), requires_grad, vjp_defined);
  fold_known(joint.graph);  // decides the formulas' `if needs_...`
  torch::jit::LowerSimpleTuples(joint.graph->block());
  run_pass(Pass::kHoistMetadata, joint.graph, [&] { hoist_metadata(joint); });
  remove_dead_code(joint.graph->block(), joint.backward_start);
  GRAPH_DUMP("joint graph", joint.graph);
  return joint;
}

}  // namespace aten_recompute
