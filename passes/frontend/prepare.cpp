#include "passes/frontend/prepare.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/jit_log.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/loop_unrolling.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/csrc/jit/passes/peephole_list_idioms.h>
#include <torch/csrc/jit/passes/shape_analysis.h>

#include <algorithm>
#include <limits>
#include <unordered_set>

#include "ir/dead_code.h"
#include "ir/functionalize.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "passes/frontend/fold_conditions.h"
#include "passes/frontend/functionalize_lists.h"
#include "passes/frontend/propagate_ranks.h"
#include "passes/frontend/sink_into_checks.h"
#include "passes/frontend/split_list_attributes.h"
#include "passes/manager/pass_manager.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;
namespace aten = c10::aten;

// Replaces Optional inputs by None or gives them their element type, and gives tensor inputs their
// rank, so that dim() of them and of values computed from them is constant. Returns what is
// assumed.
std::vector<InputAssumption> specialise_inputs(const std::shared_ptr<Graph>& graph,
                                               const std::vector<c10::IValue>& inputs) {
  std::vector<InputAssumption> assumptions;
  for (size_t i = 0; i < inputs.size(); ++i) {
    auto* value = graph->inputs()[i + 1];
    InputAssumption assumption;
    assumption.input = i;
    if (auto optional = value->type()->cast<c10::OptionalType>()) {
      assumption.is_none = inputs[i].isNone();
      const torch::jit::WithInsertPoint guard(graph->block()->nodes().front());
      if (assumption.is_none) {
        value->replaceAllUsesWith(graph->insertConstant(c10::IValue()));
      } else {
        auto* cast = graph->insertUncheckedCast(value, optional->getElementType());
        value->replaceAllUsesAfterNodeWith(cast->node(), cast);
        value = cast;
      }
    }
    if (inputs[i].isTensor() && inputs[i].toTensor().defined() &&
        value->type()->kind() == c10::TypeKind::TensorType) {
      const auto& tensor = inputs[i].toTensor();
      assumption.rank = tensor.dim();
      value->setType(c10::TensorType::create(std::nullopt, std::nullopt,
                                             static_cast<size_t>(tensor.dim()), std::nullopt));
    }
    assumptions.push_back(assumption);
  }
  return assumptions;
}

// Removes dropout that does nothing: dropout(x, p, train=False) returns x itself, an alias that its
// schema does not declare.
void remove_idle_dropout(Block* block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end();) {
    auto* node = *it++;
    for (auto* inner : node->blocks())
      remove_idle_dropout(inner);
    if (!has_fact(node, Fact::kDropout))
      continue;
    const auto p = torch::jit::toIValue(node->input(1));
    const auto train = torch::jit::constant_as<bool>(node->input(2));
    if ((train && !*train) || (p && p->isDouble() && p->toDouble() == 0.0)) {
      node->output()->replaceAllUsesWith(node->input(0));
      node->destroy();
    }
  }
}

// Rewrites expand_as(x, y), view_as(x, y) and reshape_as(x, y) to expand(x, y.size()) and so on.
// They read the sizes of y only; made again for the backward, they would keep y itself.
void replace_view_as(Graph& graph) {
  std::vector<Node*> found;
  for_each_node(graph.block(), [&](Node* node) {
    if (node->kind() == aten::expand_as || node->kind() == aten::view_as ||
        node->kind() == aten::reshape_as)
      found.push_back(node);
  });
  for (auto* node : found) {
    const torch::jit::WithInsertPoint guard(node);
    const auto kind = node->kind() == aten::expand_as ? aten::expand
                      : node->kind() == aten::view_as ? aten::view
                                                      : aten::reshape;
    auto* sizes = graph.insert(aten::size, {node->input(1)});
    auto* view = graph.insert(kind, {node->input(0), sizes});
    view->node()->copyMetadata(node);
    view->node()->copyAttributes(*node);
    node->output()->replaceAllUsesWith(view);
    view->copyMetadata(node->output());
    node->destroy();
  }
}

// Returns whether the block has complex constants. LibTorch's peephole pass takes every number for
// a real one, and throws at x * 1j.
bool has_complex_constant(Block* block) {
  bool found = false;
  for_each_node(block, [&](Node* node) {
    found = found || (node->kind() == c10::prim::Constant &&
                      node->output()->type()->kind() == c10::TypeKind::ComplexType);
  });
  return found;
}

std::vector<Value*> tensor_constants(Block* block) {
  std::vector<Value*> constants;
  for_each_node(block, [&](Node* node) {
    if (node->kind() == c10::prim::Constant &&
        node->output()->type()->kind() == c10::TypeKind::TensorType)
      constants.push_back(node->output());
  });
  return constants;
}

// Propagates constants. torch.zeros(3) is a new tensor at each call, which the caller may write to.
// So where a folded tensor may be seen by others than the operators that read it, it is copied.
void propagate_constants(std::shared_ptr<Graph>& graph) {
  std::unordered_set<size_t> known;
  for (const auto* constant : tensor_constants(graph->block()))
    known.insert(constant->unique());
  torch::jit::ConstantPropagation(graph);
  for (auto* constant : tensor_constants(graph->block())) {
    if (known.count(constant->unique()) != 0)
      continue;
    const auto uses = constant->uses();
    Value* copy = nullptr;
    for (const auto& use : uses) {
      if (!use.user->outputs().empty() && makes_new_tensor(use.user->output(0)))
        continue;
      if (copy == nullptr) {
        const torch::jit::WithInsertPoint guard(constant->node()->next());
        copy = graph->insert(aten::clone, {constant});
      }
      use.user->replaceInput(use.offset, copy);
    }
  }
}

void run_propagate_constants(std::shared_ptr<Graph>& graph) {
  run_pass(Pass::kPropagateConstants, graph, [&] { propagate_constants(graph); });
}

bool run_fold_conditions(std::shared_ptr<Graph>& graph) {
  bool changed = false;
  run_pass(Pass::kFoldConditions, graph, [&] { changed = fold_conditions(graph); });
  return changed;
}

void lower_tuples(std::shared_ptr<Graph>& graph) {
  run_pass(Pass::kLowerTuples, graph, [&] { torch::jit::LowerSimpleTuples(graph->block()); });
}

void run_remove_idle_dropout(std::shared_ptr<Graph>& graph) {
  run_pass(Pass::kRemoveIdleDropout, graph, [&] { remove_idle_dropout(graph->block()); });
}

void simplify_lists(std::shared_ptr<Graph>& graph) {
  run_pass(Pass::kSimplify, graph,
           [&] { torch::jit::PeepholeOptimizeListIdioms(graph, /*refine_list_len=*/true); });
}

void pool_constants(std::shared_ptr<Graph>& graph) {
  run_pass(Pass::kPoolConstants, graph, [&] { torch::jit::ConstantPooling(graph); });
}

void fold_constants(std::shared_ptr<Graph>& graph) {
  // A folded condition may remove an `if`, which may make the next condition constant.
  do {
    run_fold_conditions(graph);
    if (!has_complex_constant(graph->block()))
      run_pass(Pass::kSimplify, graph, [&] { torch::jit::PeepholeOptimize(graph); });
    run_propagate_constants(graph);
  } while (run_fold_conditions(graph));
  // Constant propagation removes dead nodes only if it has changed something.
  run_pass(Pass::kEliminateDeadCode, graph, [&] { torch::jit::EliminateDeadCode(graph->block()); });
}

void keep_ranks_only(at::ArrayRef<Value*> values) {
  for (auto* value : values) {
    const auto type = value->type()->cast<c10::TensorType>();
    if (type != nullptr && value->node()->kind() != c10::prim::Constant)
      value->setType(
          c10::TensorType::create(std::nullopt, std::nullopt, type->dim(), std::nullopt));
  }
}

// Infers ranks with LibTorch's shape propagation. That runs operators on made-up tensors, which
// some operators refuse; what was inferred before remains valid. Only ranks are used, because it
// takes torch.zeros(3) for a tensor of doubles, whatever the default type is.
void propagate_shapes(std::shared_ptr<Graph>& graph) {
  try {
    torch::jit::PropagateInputShapes(graph);
  } catch (const std::exception& error) {
    GRAPH_DEBUG("shapes are not propagated: ", error.what());
  }
  for_each_node(graph->block(), [](Node* node) {
    keep_ranks_only(node->outputs());
    for (auto* block : node->blocks())
      keep_ranks_only(block->inputs());
  });
}

// Returns the number of `if`s and loops with tensor outputs.
size_t num_tensor_branches(Block* block) {
  size_t count = 0;
  for_each_node(block, [&](const Node* node) {
    const auto outputs = node->outputs();
    count += (node->kind() == c10::prim::If || node->kind() == c10::prim::Loop) &&
             std::any_of(outputs.begin(), outputs.end(),
                         [](const Value* value) { return contains_tensor(*value->type()); });
  });
  return count;
}

// Folds `if`s on dim(). Folding one may determine the rank of its results, so that the next can be
// folded.
void fold_ranks(std::shared_ptr<Graph>& graph, const c10::intrusive_ptr<c10::ivalue::Object>& self,
                Assumptions& assumptions) {
  auto before = std::numeric_limits<size_t>::max();
  for (auto count = num_tensor_branches(graph->block()); count > 0 && count < before;) {
    run_pass(Pass::kPropagateRanks, graph, [&] {
      const auto found = propagate_ranks(graph, self);
      assumptions.attributes.insert(assumptions.attributes.end(), found.begin(), found.end());
    });
    fold_constants(graph);
    lower_tuples(graph);
    simplify_lists(graph);
    before = count;
    count = num_tensor_branches(graph->block());
  }
}

// What both forms of a method end with: attributes are read where regions find them, and nothing is
// left of what only earlier passes needed.
void finish(std::shared_ptr<Graph>& graph, const c10::intrusive_ptr<c10::ivalue::Object>& self,
            Assumptions& assumptions) {
  run_pass(Pass::kHoistAttributes, graph, [&] { hoist_attributes(graph); });
  run_pass(Pass::kSplitListAttributes, graph, [&] {
    const auto found = split_list_attributes(graph, self);
    assumptions.attributes.insert(assumptions.attributes.end(), found.begin(), found.end());
  });
  run_pass(Pass::kSinkIntoChecks, graph, [&] { sink_into_checks(graph); });
  torch::jit::EraseShapeInformation(graph);
  run_remove_idle_dropout(graph);
  pool_constants(graph);
  // By now it is known which norms are in training.
  unpin_effects(graph->block());
  pin_effects(graph->block());
  run_pass(Pass::kEliminateDeadCode, graph, [&] { torch::jit::EliminateDeadCode(graph); });
  unpin_effects(graph->block());
}

// Makes changes of lists functional.
void run_functionalize_lists(std::shared_ptr<Graph>& graph) {
  // In eager mode a dropout that does nothing returns its argument itself, so a write to one is a
  // write to both. functionalize() would take them for two tensors.
  run_remove_idle_dropout(graph);
  run_pass(Pass::kFunctionalizeLists, graph, [&] { functionalize_lists(graph); });
}

}  // namespace

bool Assumptions::hold(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                       const std::vector<c10::IValue>& values) const {
  for (const auto& assumption : inputs) {
    const auto& value = values[assumption.input];
    if (assumption.is_none != value.isNone())
      return false;
    if (assumption.rank >= 0 && !(value.isTensor() && value.toTensor().defined() &&
                                  value.toTensor().dim() == assumption.rank)) {
      return false;
    }
  }
  for (const auto& attribute : attributes) {
    if (!holds(attribute, self))
      return false;
  }
  return path == nullptr || path->holds(self, values);
}

Assumptions fold_call(const std::shared_ptr<Graph>& given,
                      const c10::intrusive_ptr<c10::ivalue::Object>& self,
                      const std::vector<c10::IValue>& inputs) {
  auto graph = given;
  Assumptions assumptions;
  pin_effects(graph->block());  // until finish()
  // The shapes in a trace hold for its example inputs only.
  torch::jit::EraseShapeInformation(graph);
  run_pass(Pass::kFoldAttributes, graph,
           [&] { assumptions.attributes = fold_attributes(graph, self); });
  run_pass(Pass::kSpecialiseInputs, graph,
           [&] { assumptions.inputs = specialise_inputs(graph, inputs); });
  run_pass(Pass::kReplaceViewAs, graph, [&] { replace_view_as(*graph); });
  // Removes most branches that are never taken before passes that run the slower alias analysis.
  run_pass(Pass::kPropagateConstants, graph,
           [&] { torch::jit::ConstantPropagationImmutableTypes(graph); });
  // Otherwise constants are a third of all nodes in every later pass.
  pool_constants(graph);
  return assumptions;
}

bool is_straight_line(Graph& graph) {
  auto* block = graph.block();
  bool straight = num_tensor_branches(block) == 0;
  for_each_node(block, [&](const Node* node) {
    const bool is_choice = node->owningBlock() != block && mutates_an_argument(node);
    // What is left after inlining is a call through an interface.
    const bool is_call = node->kind() == c10::prim::CallMethod;
    straight = straight && node->kind() != c10::prim::Loop && !is_choice && !is_call;
  });
  return straight;
}

void prepare(const std::shared_ptr<Graph>& given,
             const c10::intrusive_ptr<c10::ivalue::Object>& self, Assumptions& assumptions) {
  auto graph = given;
  if (is_straight_line(*graph))
    run_propagate_constants(graph);  // the rest can be folded after shapes are propagated
  else
    fold_constants(graph);
  run_pass(Pass::kUnrollLoops, graph, [&] { torch::jit::UnrollConstantLoops(graph); });
  lower_tuples(graph);
  run_functionalize_lists(graph);
  simplify_lists(graph);
  // In a graph of a thousand layers this takes as long as all other passes together, so it is done
  // only if there is something to gain.
  if (num_tensor_branches(graph->block()) > 0)
    fold_constants(graph);
  run_pass(Pass::kFunctionalize, graph, [&] { functionalize(graph); });
  lower_tuples(graph);
  run_pass(Pass::kPropagateShapes, graph, [&] { propagate_shapes(graph); });
  fold_constants(graph);
  fold_ranks(graph, self, assumptions);
  finish(graph, self, assumptions);
}

void prepare_recorded(const std::shared_ptr<Graph>& given,
                      const c10::intrusive_ptr<c10::ivalue::Object>& self,
                      Assumptions& assumptions) {
  auto graph = given;
  lower_tuples(graph);
  run_functionalize_lists(graph);
  run_pass(Pass::kFunctionalize, graph, [&] { functionalize(graph); });
  lower_tuples(graph);
  finish(graph, self, assumptions);
}

}  // namespace aten_recompute
