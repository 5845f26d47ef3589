#include "passes/pipeline.h"

#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/log.h"
#include "common/strategy_traits.h"
#include "ir/node_traits.h"
#include "ir/save_plan.h"
#include "ir/symbols.h"
#include "passes/autodiff/alternatives.h"
#include "passes/autodiff/differentiate.h"
#include "passes/autodiff/expand_gradients.h"
#include "passes/autodiff/inner_backward.h"
#include "passes/autodiff/name_values.h"
#include "passes/autodiff/not_differentiable.h"
#include "passes/autodiff/tape_sources.h"
#include "passes/manager/pass_manager.h"
#include "passes/partition/extract.h"
#include "passes/partition/splice.h"
#include "passes/partition/split_sums.h"
#include "passes/partition/undefined_gradients.h"
#include "passes/profile/measured_times.h"
#include "passes/profile/profile.h"
#include "passes/region/choose_slices.h"
#include "passes/region/insert_casts.h"
#include "passes/strategy/plan_region.h"
#include "runtime/inner_gradient.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;

// Throws NotDifferentiable if the method asks for a gradient with create_graph. In the gradients of
// that gradient, sums of bfloat16 or float16 are not always in eager PyTorch's order, so that their
// last bits differ.
void require_no_second_gradients(const Graph& forward) {
  for (const auto* node : forward.nodes()) {
    if (node->kind() == symbols::kGradient && GradientRequest::of(*node).create_graph)
      throw NotDifferentiable(
          "under autocast, gradients of gradients have other last bits under a plan: exact=False "
          "allows that");
  }
}

// Returns the input with the casts of autocast as operators of its graph.
RegionInput with_casts(RegionInput input) {
  input.has_casts = input.autocast.is_on() || depends_on_autocast(input.graph->block());
  if (input.has_casts) {
    run_pass(Pass::kInsertCasts, input.graph, [&] {
      auto casts = insert_casts(*input.graph, input.inputs, input.autocast, input.described);
      if (input.options.exact)
        require_no_second_gradients(*casts.graph);
      if (input.autocast.is_on())
        require_uncast_gradients(casts.graph, input.requires_grad, input.inputs, input.autocast,
                                 input.described);
      input.graph = std::move(casts.graph);
      input.shared_casts = std::move(casts.shared);
    });
  }
  return input;
}

// Returns the joint graph of the forward in its layout, with the alternatives that the strategy
// chooses from. Notes in `graphs` what is known then.
JointGraph differentiate_region(const std::shared_ptr<Graph>& forward, const RegionInput& input,
                                RegionGraphs& graphs) {
  JointGraph joint;
  auto expanded = forward;
  run_pass(Pass::kExpandGradients, expanded,
           [&] { expanded = expand_gradients(forward, input.requires_grad); });
  run_pass(Pass::kDifferentiate, joint.graph, [&] {
    const std::vector<bool> all(forward->outputs().size(), true);
    joint = differentiate(expanded, input.requires_grad, all);
  });
  run_pass(Pass::kNameValues, joint.graph, [&] { name_values(joint); });
  graphs.report.operators = joint.operators;
  graphs.freed = joint.freed;
  graphs.tape_sources = number_tapes(joint);
  if (input.options.save_ir)
    graphs.captured = std::make_shared<torch::jit::Gradient>(extract(joint));
  const auto traits = traits_of(input.options);
  if (!input.is_one_of_several)
    begin_inner_backward(joint, traits.keeps_budget || traits.follows_plan_file);
  if (traits.wants_alternatives)
    run_pass(Pass::kAlternatives, joint.graph, [&] { add_alternatives(joint); });
  return joint;
}

Profile run_profile(const JointGraph& joint, const RegionInput& input) {
  Profile costs;
  run_pass(Pass::kProfile, [&] {
    costs = profile(joint, input.inputs, input.options.cost_model, input.seen.profile,
                    input.described, input.profile_limit);
  });
  if (input.measured_times != nullptr)
    input.measured_times->reconcile(costs);
  return costs;
}

// Returns the profile if the strategy needs one. Changes the options for a region that cannot be
// profiled. Throws NotProfiled where the inputs are to blame, or nothing runs.
std::optional<Profile> profile_if_needed(const JointGraph& joint, const RegionInput& input,
                                         Options& options) {
  if (!needs_profile(options))
    return std::nullopt;
  try {
    auto costs = run_profile(joint, input);
    log_info(LogTopic::kProfile, "a region of " + std::to_string(costs.nodes.size()) +
                                     " operators, of which " + std::to_string(costs.num_classes) +
                                     " kinds ran, was profiled in " +
                                     std::to_string(costs.seconds) + " s");
    return costs;
  } catch (const NotProfiled& error) {
    // An estimate has nothing to fall back on.
    if (error.inputs_are_to_blame() || input.described)
      throw;
    options = without_profile(std::move(options), error.what());
    return std::nullopt;
  }
}

// Brings the plan into the graphs that run.
void finish_region(JointGraph& joint, PlannedGraph planned, RegionGraphs& graphs) {
  run_pass(Pass::kSplice, joint.graph, [&] { splice(joint, planned.problem, planned.steps); });
  auto& report = graphs.report;
  for (auto* value : captured_values(joint))
    report.saved.push_back(value->debugName());
  for (auto* node : joint.graph->nodes()) {
    if (!node->hasAttribute(symbols::kRecomputed))
      continue;
    for (auto* output : node->outputs())
      report.recomputed.push_back(output->debugName());
  }
  end_inner_backward(joint);
  run_pass(Pass::kExtract, graphs.gradient.df, [&] { graphs.gradient = extract(joint); });
  report.banned = std::move(planned.banned);
  report.unmatched = std::move(planned.unmatched);
  report.plan_seconds = planned.seconds;
  graphs.plan = std::move(planned.plan);
  finish_backward(graphs);
}

// Compiles the region in this layout. `is_measured` becomes false where the profile did not run an
// operator because it needs more than RegionInput::profile_limit. A budget out of reach is an
// error then, whatever the options say, because the smallest peak has to be measured.
RegionGraphs compile_with_profile(const RegionLayout& layout, const std::shared_ptr<Graph>& forward,
                                  const RegionInput& input, bool& is_measured) {
  RegionGraphs graphs;
  graphs.source = input.graph;
  graphs.is_attribute = input.is_attribute;
  graphs.shared_casts = input.shared_casts;
  graphs.layout = layout;
  auto joint = differentiate_region(forward, input, graphs);
  auto options = input.options;
  const auto costs = profile_if_needed(joint, input, options);
  is_measured = !costs || costs->num_too_large == 0;
  options.leanest_if_unreachable = options.leanest_if_unreachable && is_measured;
  PlannedGraph planned;
  run_pass(Pass::kPlan, [&] {
    planned = plan_region({joint, costs ? &*costs : nullptr, options, input.is_attribute,
                           input.seen, input.leanest, input.known, input.largest_unplanned_bytes,
                           input.leaves_room, input.only_known, input.method_memory});
  });
  finish_region(joint, std::move(planned), graphs);
  return graphs;
}

// Without exactness, passes/region/choose_slices.cpp says what may run.
bool keeps_budget_in_profile(const RegionInput& input) {
  return input.options.exact && input.options.memory_bytes && needs_profile(input.options) &&
         !input.described;
}

RegionGraphs compile_in_layout(const RegionLayout& layout, const std::shared_ptr<Graph>& forward,
                               const RegionInput& input) {
  bool is_measured = true;
  if (!keeps_budget_in_profile(input))
    return compile_with_profile(layout, forward, input, is_measured);
  // An operator that needs more than the budget would exceed it in the profile already. In a step
  // under the budget it may overwrite an operand.
  auto limited = input;
  limited.profile_limit.most_bytes = bytes_for_profile(input);
  try {
    auto graphs = compile_with_profile(layout, forward, limited, is_measured);
    if (is_measured || !graphs.plan ||
        graphs.plan->metrics.predicted_peak_bytes <= *input.options.memory_bytes)
      return graphs;
  } catch (const BudgetUnreachableError&) {
    if (is_measured)
      throw;
  }
  return compile_with_profile(layout, forward, input, is_measured);
}

}  // namespace

RegionGraphs compile_region(const RegionInput& given) {
  const UseRules guard(given.rules);
  auto input = with_casts(given);
  input.measured_times = std::make_shared<MeasuredTimes>();
  const WithoutAutocast no_autocast;
  const auto compile = [](const RegionInput& each) {
    return in_faster_layout(each,
                            [&](const RegionLayout& layout, const std::shared_ptr<Graph>& forward) {
                              return compile_in_layout(layout, forward, each);
                            });
  };
  const auto compile_sliced = [](const RegionInput& each, const RegionLayout& layout) {
    return compile_in_layout(layout, layout.sliced, each);
  };
  return in_slices_if_needed(input, compile, compile_sliced);
}

RegionGraphs recompile_with_plan(const RegionInput& given, const RegionGraphs& before,
                                 const RetentionPlan& retention,
                                 const std::vector<int32_t>& not_held) {
  const UseRules guard(given.rules);
  const WithoutAutocast no_autocast;
  RegionGraphs graphs;
  graphs.source = before.source;
  graphs.is_attribute = before.is_attribute;
  graphs.shared_casts = before.shared_casts;
  graphs.casts_without_gradient = before.casts_without_gradient;
  graphs.layout = before.layout;
  auto joint = differentiate_region(forward_in(before.layout, before.source), given, graphs);
  finish_region(joint, follow_plan(joint, before.plan.value(), retention, not_held), graphs);
  return graphs;
}

RegionProfile profile_region(const RegionInput& given) {
  const UseRules guard(given.rules);
  const auto input = with_casts(given);
  const WithoutAutocast no_autocast;
  RegionGraphs graphs;
  graphs.layout = usual_layout(input);
  RegionProfile region;
  region.joint = differentiate_region(forward_in(graphs.layout, input.graph), input, graphs);
  region.costs = run_profile(region.joint, input);
  region.problem =
      problem_of(region.joint, &region.costs, input.options, input.is_attribute, input.seen.caller);
  return region;
}

bool has_backward(const std::shared_ptr<Graph>& region) try {
  std::vector<bool> requires_grad;
  for (const auto* input : region->inputs())
    requires_grad.push_back(contains_tensor(*input->type()));
  const std::vector<bool> all(region->outputs().size(), true);
  differentiate(expand_gradients(region, requires_grad), requires_grad, all);
  return true;
} catch (const NotDifferentiable&) {
  return false;
}

std::optional<bool> output_requires_grad(const std::shared_ptr<Graph>& graph,
                                         const std::vector<bool>& requires_grad) try {
  const auto expanded = expand_gradients(graph, requires_grad);
  const auto nodes = expanded->nodes();
  if (std::any_of(nodes.begin(), nodes.end(), [](const torch::jit::Node* node) {
        return node->kind() == symbols::kOperatorGradient;
      }))
    return std::nullopt;
  return differentiate(expanded, requires_grad, {true}).output_requires_grad[0];
} catch (const NotDifferentiable&) {
  return std::nullopt;
}

void finish_backward(RegionGraphs& graphs) {
  auto& backward = graphs.gradient.df;
  std::set<size_t> of_casts;
  const auto& inputs = graphs.gradient.df_output_vjps;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (graphs.shared_casts.count(inputs[i]) != 0)
      of_casts.insert(i);
  }
  run_pass(Pass::kSplitSums, backward, [&] { graphs.summands = split_sums(*backward, of_casts); });
  std::set<size_t> shared;
  for (const auto& summand : graphs.summands) {
    if (summand.kind == SummandKind::kOfCast)
      shared.insert(inputs[summand.output]);
  }
  for (const auto& each : graphs.shared_casts) {
    if (!shared.contains(each.first))
      graphs.casts_without_gradient.insert(each);
  }
  std::erase_if(graphs.shared_casts,
                [&](const auto& each) { return !shared.contains(each.first); });
  run_pass(Pass::kUndefinedGradients, backward,
           [&] { allow_undefined_gradients(*backward, graphs.gradient.df_input_vjps.size()); });
}

}  // namespace aten_recompute
