#include "passes/frontend/prepare.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/loop_unrolling.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/passes/peephole_list_idioms.h>
#include <torch/csrc/jit/passes/shape_analysis.h>

#include <algorithm>
#include <limits>

#include "ir/dead_code.h"
#include "ir/functionalize.h"
#include "ir/node_traits.h"
#include "passes/frontend/rewrites/fold_conditions.h"
#include "passes/frontend/rewrites/functionalize_lists.h"
#include "passes/frontend/rewrites/propagate_ranks.h"
#include "passes/frontend/rewrites/sink_into_checks.h"
#include "passes/frontend/rewrites/small_passes.h"
#include "passes/frontend/rewrites/split_list_attributes.h"
#include "passes/manager/pass_manager.h"

namespace aten_recompute {
namespace {

using torch::jit::Block;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

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
  run_pass(Pass::kRemoveIdleDropout, graph, [&] { remove_idle_dropout(*graph); });
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
    run_pass(Pass::kSimplify, graph, [&] { simplify(graph); });
    run_propagate_constants(graph);
  } while (run_fold_conditions(graph));
  // Constant propagation removes dead nodes only if it has changed something.
  run_pass(Pass::kEliminateDeadCode, graph, [&] { torch::jit::EliminateDeadCode(graph->block()); });
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
  if (gradients_are_disabled && at::GradMode::is_enabled())
    return false;
  return path == nullptr || path->holds(self, values);
}

std::string Assumptions::difference(const c10::intrusive_ptr<c10::ivalue::Object>& self,
                                    const std::vector<c10::IValue>& values,
                                    const std::vector<std::string>& names) const {
  for (const auto& assumption : inputs) {
    const auto& value = values[assumption.input];
    const auto name = "input " + names.at(assumption.input);
    if (assumption.is_none != value.isNone())
      return name + (value.isNone() ? " is None now" : " is not None any more");
    if (assumption.rank < 0)
      continue;
    const bool is_tensor = value.isTensor() && value.toTensor().defined();
    if (!is_tensor || value.toTensor().dim() != assumption.rank) {
      return is_tensor ? c10::str(name, " has ", value.toTensor().dim(), " dimensions instead of ",
                                  assumption.rank)
                       : name + " is no tensor any more";
    }
  }
  for (const auto& attribute : attributes) {
    if (!holds(attribute, self))
      return aten_recompute::difference(attribute, self);
  }
  if (gradients_are_disabled && at::GradMode::is_enabled())
    return "gradients are enabled";
  return path == nullptr || path->holds(self, values) ? "" : path->difference(values, names);
}

Assumptions fold_call(const std::shared_ptr<Graph>& given,
                      const c10::intrusive_ptr<c10::ivalue::Object>& self,
                      const std::vector<c10::IValue>& inputs, const AttributePaths& changing) {
  auto graph = given;
  Assumptions assumptions;
  pin_effects(graph->block());  // until finish()
  // The shapes in a trace hold for its example inputs only.
  torch::jit::EraseShapeInformation(graph);
  run_pass(Pass::kFoldAttributes, graph,
           [&] { assumptions.attributes = fold_attributes(graph, self, changing); });
  run_pass(Pass::kSpecializeInputs, graph,
           [&] { assumptions.inputs = specialize_inputs(graph, inputs); });
  run_pass(Pass::kReplaceViewAs, graph, [&] { replace_view_as(*graph); });
  // Removes most branches that are never taken before passes that run the slower alias analysis.
  run_pass(Pass::kPropagateConstants, graph,
           [&] { torch::jit::ConstantPropagationImmutableTypes(graph); });
  // Otherwise constants are a third of all nodes in every later pass.
  pool_constants(graph);
  run_pass(Pass::kRemoveWholeSlices, graph, [&] { remove_whole_slices(*graph); });
  return assumptions;
}

bool is_straight_line(Graph& graph) {
  auto* block = graph.block();
  // What autocast casts to within a block is known on a recorded path.
  bool straight = num_tensor_branches(block) == 0 && !depends_on_autocast(block);
  for_each_node(block, [&](const Node* node) {
    const bool is_choice = node->owningBlock() != block && mutates_an_argument(node);
    // What is left after inlining is a call through an interface.
    const bool is_call = node->kind() == c10::prim::CallMethod;
    // Gradients that the method asks for are known on a recorded path.
    straight = straight && node->kind() != c10::prim::Loop && !is_choice && !is_call &&
               node->kind() != c10::aten::grad;
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
