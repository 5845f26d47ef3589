#include "passes/autodiff/backward_steps.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/lower_tuples.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/symbols.h"
#include "passes/autodiff/apply_rule.h"
#include "passes/autodiff/broadcast_gradients.h"
#include "passes/autodiff/fold_known.h"
#include "passes/autodiff/freed_graph.h"
#include "passes/autodiff/hoist_metadata.h"
#include "passes/autodiff/list_gradients.h"
#include "passes/autodiff/not_differentiable.h"
#include "passes/autodiff/operator_gradient.h"
#include "passes/autodiff/put_on_tape.h"
#include "passes/autodiff/sliced_gradient.h"
#include "rules/recomputability.h"
#include "rules/registry.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
namespace prim = c10::prim;

using InsertBackward = std::function<void()>;

// Where a forward node comes from. The nodes of its backward are marked with this, for errors and
// profilers.
class Origin {
 public:
  Origin(const Node* node, Purpose purpose)
      : purpose_(purpose), op_(qualified_operator_name(node)), source_(node->sourceRange()) {
    if (node->hasAttribute(symbols::kModulePath))
      module_path_ = node->s(symbols::kModulePath);
    if (node->hasAttribute(symbols::kLayer))
      layer_ = node->i(symbols::kLayer);
    if (node->hasAttribute(symbols::kNumber))
      number_ = node->i(symbols::kNumber);
    else if (node->hasAttribute(symbols::kOfNumber))
      number_ = node->i(symbols::kOfNumber);
    is_of_cached_cast_ = node->hasAttribute(symbols::kCachedCast);
  }

  void mark(Node* added) const {
    if (added->kind() == prim::Constant)
      return;
    added->setSourceRange(source_);
    added->s_(symbols::kBackwardOf, op_);
    if (number_ >= 0)
      added->i_(symbols::kOfNumber, number_);
    if (is_of_cached_cast_)
      added->i_(symbols::kCachedCast, 1);
    if (!module_path_.empty())
      added->s_(symbols::kModulePath, module_path_);
    if (purpose_ != Purpose::kBackward && layer_ >= 0)
      added->i_(symbols::kLayer, layer_);
  }

 private:
  Purpose purpose_;
  std::string op_;
  std::string module_path_;
  int64_t layer_ = -1;
  int64_t number_ = -1;
  bool is_of_cached_cast_ = false;
  torch::jit::SourceRange source_;
};

// Returns whether a gradient passes through the node.
bool is_differentiated(Node* node, const GradientSums& sums) {
  if (node->hasAttribute(symbols::kWithoutGraph) || node->hasAttribute(symbols::kFreed))
    return false;
  const auto inputs = node->inputs();
  const auto outputs = node->outputs();
  return std::any_of(inputs.begin(), inputs.end(),
                     [&](auto* input) { return sums.requires_grad(input); }) &&
         node->blocks().empty() && !mutates_an_argument(node) && !is_non_differentiable(node) &&
         std::any_of(outputs.begin(), outputs.end(),
                     [](const auto* output) { return contains_tensor(*output->type()); });
}

// Returns whether other nodes, too, make tensors of the node's first operand.
bool shares_operand(const Node* node) {
  const auto& uses = node->input(0)->uses();
  return std::any_of(uses.begin(), uses.end(), [&](const torch::jit::Use& use) {
    const auto outputs = use.user->outputs();
    return use.user != node && std::any_of(outputs.begin(), outputs.end(), [](const auto* output) {
             return contains_tensor(*output->type());
           });
  });
}

// Returns whether a rule's formula has brought the node into the forward.
bool is_part_of_formula(const Node* node) {
  return node->hasAttribute(symbols::kBackwardOf);
}

// Returns whether a branch of the formula, which is not decided ahead of time, reads a value that
// requires grad: no gradient would pass through it.
bool has_undecided_gradient(Node* node, const GradientSums& sums) {
  const auto outputs = node->outputs();
  if (node->blocks().empty() || node->hasAttribute(symbols::kWithoutGraph) ||
      std::none_of(outputs.begin(), outputs.end(),
                   [](const auto* output) { return contains_tensor(*output->type()); }))
    return false;
  bool found = false;
  for (auto* block : node->blocks()) {
    const auto results = block->outputs();
    found = found || std::any_of(results.begin(), results.end(),
                                 [&](auto* result) { return sums.requires_grad(result); });
    for_each_node(block, [&](Node* inner) {
      const auto inputs = inner->inputs();
      found = found || std::any_of(inputs.begin(), inputs.end(), [&](auto* input) {
                return contains_tensor(*input->type()) && sums.requires_grad(input);
              });
    });
  }
  return found;
}

StretchGradients gradients_of_stretch(Purpose purpose, bool frees_graph,
                                      const std::shared_ptr<Graph>& stretch,
                                      const std::vector<bool>& requires_grad,
                                      const std::vector<bool>& has_gradient);

// Prepares one node after the other.
class Preparation {
 public:
  Preparation(Purpose purpose, bool frees_graph, GradientSums& sums, PreparedNodes& prepared)
      : purpose_(purpose), frees_graph_(frees_graph), sums_(sums), prepared_(prepared) {}

  void add(Node* node) {
    const auto origin = std::make_shared<Origin>(node, purpose_);  // the node may be gone afterward
    const auto name = qualified_operator_name(node);
    auto& by_rule = prepared_.operators.by_rule;
    const auto num_rules = by_rule.size();
    auto parts = replace_composed(node);
    const bool is_composed = !parts.empty();
    if (!is_composed)
      parts = {node};
    for (auto* part : parts) {
      if (!is_differentiated(part, sums_))
        continue;
      auto* before = part->prev();
      const auto* after = part->next();
      const auto gradients_of = part->hasAttribute(kGradientsOf) ? part->i(kGradientsOf) : -1;
      const bool is_sum =
          part->kind() == symbols::kAccumulate || part->kind() == symbols::kAccumulateList;
      auto insert = prepare(part);
      if (insert == nullptr)
        continue;
      auto nodes = purpose_ == Purpose::kBackward ? std::vector<Node*>()
                                                  : nodes_in_place_of(part, before, after);
      steps_.push_back({std::move(nodes), std::move(insert),
                        [origin](Node* added) { origin->mark(added); }, gradients_of, is_sum});
    }
    if (is_composed) {  // it counts as one operator
      by_rule.resize(num_rules);
      by_rule.push_back(name);
    }
  }

  // Takes a node whose graph eager has freed. It has no gradient, but runs the kernels that eager
  // takes where operands have requires_grad.
  void add_freed(Node* node) {
    auto parts = replace_composed(node);
    if (parts.empty())
      parts = {node};
    for (auto* part : parts) {
      part->i_(symbols::kFreed, 1);
      const auto* rule = find_rule(part);
      if (rule != nullptr && !rule->is_users && rule->has_forward() && rule->extras.empty() &&
          !rule->is_composition() && !draws_random_numbers(part))
        replace_by_forward(part, *rule, sums_);
    }
  }

  // Sums come behind all else that is of the same operator: eager's engine adds when it has all
  // gradients of an operator, and so goes back through the sums first.
  std::vector<BackwardStep> steps() {
    for (auto begin = steps_.begin(); begin != steps_.end();) {
      const auto end = std::find_if(begin, steps_.end(), [&](const BackwardStep& step) {
        return step.gradients_of != begin->gradients_of;
      });
      if (begin->gradients_of >= 0)
        std::stable_partition(begin, end, [](const BackwardStep& step) { return !step.is_sum; });
      begin = end;
    }
    return std::move(steps_);
  }

 private:
  // Returns `node` where it still stands between `before` and `after`, and otherwise those of the
  // nodes there that a gradient passes through.
  std::vector<Node*> nodes_in_place_of(const Node* node, Node* before, const Node* after) const {
    std::vector<Node*> nodes;
    for (auto* each = before->next(); each != after; each = each->next()) {
      if (each == node)
        return {each};
      if (is_differentiated(each, sums_))
        nodes.push_back(each);
    }
    return nodes;
  }

  // Marks the outputs of `node` that require grad, and replaces the node where its rule or the tape
  // says so. Returns what inserts its backward; an empty function where there is nothing to insert.
  InsertBackward prepare(Node* node) {
    auto& sums = sums_;
    if (is_broadcast(node)) {
      sums.require_tensor(node->output());
      return {};
    }
    if (unpacks_broadcast(node)) {
      prepared_.operators.by_rule.emplace_back("aten::broadcast_tensors");
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
    if (purpose_ == Purpose::kBackward && node->kind() == symbols::kRequireGrad &&
        node->inputs().size() == 2) {
      sums.require_tensor(node->output());
      sums.share_gradient(node->output(), node->input(1));
      return {};
    }
    if (is_cast(node) || is_marker(node) || node->kind() == symbols::kRequireGrad) {
      sums.require_tensor(node->output());
      return [in = node->input(0), out = node->output(), &sums] {
        if (auto* gradient = sums.gradient_of(out))
          sums.add(in, gradient);
      };
    }
    if (node->kind() == symbols::kReduceGrad && is_part_of_formula(node) && shares_operand(node)) {
      prepared_.operators.by_rule.push_back(qualified_operator_name(node));
      sums.require_tensor(node->output());
      sums.pass_to_operand(node->output());
      return {};
    }
    if (node->kind() == symbols::kSliced)
      return prepare_sliced(node);
    const auto* rule = find_rule(node);
    if (rule != nullptr && rule->is_composition())
      rule = nullptr;
    if (purpose_ == Purpose::kBackward && rule != nullptr)
      return prepare_rule(node, *rule);
    if (purpose_ == Purpose::kBackward)
      return is_part_of_formula(node) && has_operator_gradient(node)
                 ? prepare_operator_gradient(node)
                 : prepare_tape(node);
    const bool may_use_rule =
        rule != nullptr && may_stay_beside(*rule, node) &&
        (purpose_ == Purpose::kGradient || may_differentiate_again(*rule, node));
    return may_use_rule ? prepare_rule(node, *rule) : prepare_operator_gradient(node);
  }

  InsertBackward prepare_rule(Node* node, const Rule& rule) {
    auto& operators = prepared_.operators;
    (rule.is_users ? operators.by_user_rule : operators.by_rule)
        .push_back(qualified_operator_name(node));
    auto applied = purpose_ == Purpose::kBackward
                       ? apply_rule_forward(node, rule, sums_, prepared_.gradient_path)
                       : apply_rule_beside(node, rule, sums_, purpose_ == Purpose::kGradientAgain);
    return [applied = std::move(applied), &sums = sums_] { insert_rule_backward(applied, sums); };
  }

  InsertBackward prepare_sliced(Node* node) {
    prepared_.operators.by_rule.push_back(qualified_operator_name(node));
    require_sliced_results(node, sums_);
    const auto differentiate = [purpose = purpose_, frees = frees_graph_](const auto&... stretch) {
      return gradients_of_stretch(purpose, frees, stretch...);
    };
    return
        [node, differentiate, &sums = sums_] { insert_sliced_gradient(node, sums, differentiate); };
  }

  InsertBackward prepare_tape(Node* node) {
    prepared_.operators.on_tape.push_back(qualified_operator_name(node));
    return [tape = put_on_tape(node, sums_), &sums = sums_] { insert_tape_backward(tape, sums); };
  }

  InsertBackward prepare_operator_gradient(Node* node) {
    prepared_.operators.by_rule.push_back(qualified_operator_name(node));
    require_differentiable_outputs(node, sums_);
    return [node, &sums = sums_] { insert_operator_gradient(node, sums); };
  }

  // Replaces a composed operator by its parts, each of which has a gradient of its own. Returns an
  // empty list if `node` is none.
  std::vector<Node*> replace_composed(Node* node) {
    const auto* rule = find_rule(node);
    if (rule == nullptr || !rule->is_composition() ||
        (purpose_ == Purpose::kGradientAgain && !may_differentiate_parts_again(*rule, node)))
      return {};
    return replace_by_parts(node, *rule, sums_);
  }

  Purpose purpose_;
  bool frees_graph_;
  GradientSums& sums_;
  PreparedNodes& prepared_;
  std::vector<BackwardStep> steps_;
};

void remove_checks(Graph& graph) {
  for (auto node = graph.nodes().begin(); node != graph.nodes().end(); ++node) {
    if (node->kind() == symbols::kCheckPath)
      node.destroyCurrent();
  }
}

// Returns the joint graph of a stretch, of which only the gradients are results.
StretchGradients gradients_of_stretch(Purpose purpose, bool frees_graph,
                                      const std::shared_ptr<Graph>& stretch,
                                      const std::vector<bool>& requires_grad,
                                      const std::vector<bool>& has_gradient) {
  StretchGradients gradients{stretch->copy()};
  auto& graph = *gradients.graph;
  remove_checks(graph);  // the forward has passed them
  GradientSums sums(graph);
  for (size_t i = 0; i < requires_grad.size(); ++i) {
    if (requires_grad[i])
      sums.require(graph.inputs()[i]);
  }
  PreparedNodes prepared;
  const std::vector<Node*> nodes(graph.nodes().begin(), graph.nodes().end());
  const auto steps = prepare_forward(nodes, purpose, sums, prepared, frees_graph);
  FreedGraph freed;
  JointGraph joint;
  joint.graph = gradients.graph;
  joint.backward_start = graph.appendNode(graph.create(symbols::kBackwardStart, 0));
  for (size_t i = 0; i < has_gradient.size(); ++i) {
    auto* result = graph.outputs()[i];
    if (!has_gradient[i] || !sums.requires_grad(result))
      continue;
    gradients.results.push_back(i);
    auto* gradient = graph.addInput()->setType(c10::TensorType::get());
    freed.add_gradient(gradient);
    sums.add(result, gradient);
  }
  const auto* end = graph.return_node();
  insert_backward(graph, steps, [&](const BackwardStep& step, const Node* first) {
    if (frees_graph)
      freed.mark(step.nodes, first, end);
    freed.add_gradients(first, end);
  });
  for (size_t i = 0; i < has_gradient.size(); ++i)
    graph.eraseOutput(0);
  for (size_t i = 0; i < requires_grad.size(); ++i) {
    auto* gradient = requires_grad[i] ? sums.gradient_of(graph.inputs()[i]) : nullptr;
    if (gradient == nullptr)
      continue;
    gradients.operands.push_back(i);
    graph.registerOutput(gradient);
  }
  fold_known(gradients.graph);
  torch::jit::LowerSimpleTuples(graph.block());
  hoist_metadata(joint);
  joint.backward_start->destroy();
  return gradients;
}

}  // namespace

std::vector<BackwardStep> prepare_forward(const std::vector<Node*>& nodes, Purpose purpose,
                                          GradientSums& sums, PreparedNodes& prepared,
                                          bool frees_graph) {
  Preparation preparation(purpose, frees_graph, sums, prepared);
  for (auto* node : nodes) {
    if (is_part_of_formula(node) && has_undecided_gradient(node, sums))
      throw NotDifferentiable("a gradient of " + node->s(symbols::kBackwardOf) +
                              ", whose formula depends on sizes, is asked for by the method");
    // The backward of a gradient that the method asks for ends at its targets.
    if (purpose == Purpose::kBackward && node->kind() == symbols::kRequireGrad)
      sums.require(node->output());
    if (is_differentiated(node, sums))
      preparation.add(node);
    else if (purpose == Purpose::kBackward && node->hasAttribute(symbols::kFreed))
      preparation.add_freed(node);
  }
  return preparation.steps();
}

void insert_backward(Graph& graph, const std::vector<BackwardStep>& steps,
                     const std::function<void(const BackwardStep&, Node*)>& inserted) {
  auto* end = graph.insertPoint();
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    auto* before = end->prev();
    step->insert();
    auto* first = before->next();
    for (auto* added = first; added != end; added = added->next()) {
      step->mark(added);
      if (!step->nodes.empty() && added->kind() != prim::Constant)
        added->i_(kGradientsOf, static_cast<int64_t>(step->nodes[0]->output(0)->unique()));
    }
    if (inserted != nullptr && first != end)
      inserted(*step, first);
  }
}

void remove_gradients_of(torch::jit::Block* block) {
  for_each_node(block, [](Node* node) {
    if (node->hasAttribute(kGradientsOf))
      node->removeAttribute(kGradientsOf);
  });
}

}  // namespace aten_recompute
