#include "passes/strategy/plan_region.h"

#include <ATen/Parallel.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "common/log.h"
#include "common/strategy_traits.h"
#include "ir/save_plan.h"
#include "ir/symbols.h"
#include "passes/strategy/min_cut.h"
#include "passes/strategy/tags.h"
#include "planner/model/plan_file.h"
#include "planner/model/simulator.h"

namespace aten_recompute {
namespace {

using Clock = std::chrono::steady_clock;

// Writes what must_save and must_recompute ask for into the problem.
void obey_tags(GraphProblem& graph) {
  const auto tags = value_tags(graph);
  if (std::all_of(tags.begin(), tags.end(), [](Tag tag) { return tag == Tag::kNone; }))
    return;
  for (const auto tag : tags) {
    graph.problem.must_save.push_back(tag == Tag::kMustSave);
    graph.problem.must_recompute.push_back(tag == Tag::kMustRecompute);
  }
}

RetentionPlan leanest_of(const GraphProblem& problem, const std::vector<SavePlan>& plans) {
  Simulator simulator(problem.problem);
  std::optional<RetentionPlan> best;
  int64_t best_bytes = 0;
  for (const auto& plan : plans) {
    auto retention = retention_of(problem, plan);
    const auto bytes = simulator.run(retention).peak_bytes;
    if (best && bytes >= best_bytes)
      continue;
    best = std::move(retention);
    best_bytes = bytes;
  }
  return *best;
}

// For a region among others: what it keeps is alive while these run, its own peak is not. So
// keeping least is better than the smallest peak, unless that peak is much smaller.
RetentionPlan keep_least(const PlanRequest& request, const GraphProblem& problem,
                         const RetentionPlan& unplanned) {
  constexpr double kMuchLarger = 1.5;
  auto best = plan_leanest(problem.problem, unplanned, static_cast<size_t>(at::get_num_threads()));
  Simulator simulator(problem.problem);
  const auto leanest = simulator.run(best);
  auto saved_bytes = leanest.saved_bytes;
  const auto bytes = value_bytes(problem);
  const PlanInput plan_input{request.joint, request.options, request.is_attribute, bytes};
  auto plans = segment_plans(plan_input);
  plans.push_back(plan_all_layers(plan_input));
  for (const auto& plan : plans) {
    auto retention = retention_of(problem, plan);
    const auto simulation = simulator.run(retention);
    if (simulation.saved_bytes >= saved_bytes ||
        static_cast<double>(simulation.peak_bytes) >
            kMuchLarger * static_cast<double>(leanest.peak_bytes))
      continue;
    saved_bytes = simulation.saved_bytes;
    best = std::move(retention);
  }
  return best;
}

// Share of a budget that is left free for larger inputs, if that is possible.
constexpr double kRoomToGrow = 0.33;

RetentionPlan decide_by_budget(const PlanRequest& request, const GraphProblem& problem) {
  const auto unplanned = retention_of(problem, save_everything(request.joint));
  if (request.leanest)
    return keep_least(request, problem, unplanned);
  const bool leaves_room = request.options.memory_bytes.has_value() && request.leaves_room;
  const bool data_decide_sizes = request.profile != nullptr && !request.profile->data_sizes.empty();
  return plan_budget(problem.problem, unplanned, request.options,
                     {.num_threads = static_cast<size_t>(at::get_num_threads()),
                      .margin = leaves_room         ? kRoomToGrow
                                : data_decide_sizes ? kDataGrowth
                                                    : 0.0,
                      .known = request.known,
                      .only_known = request.only_known,
                      .largest_unplanned_bytes = request.largest_unplanned_bytes});
}

RetentionPlan decide_by_min_cut(const PlanRequest& request, PlannedGraph& planned) {
  auto cut = plan_min_cut(request.joint, planned.problem, *request.profile, request.is_attribute,
                          request.options.min_cut);
  if (log_enabled(LogTopic::kPlan, LogLevel::kInfo))
    log_info(LogTopic::kPlan, summary(cut, planned.problem));
  planned.banned = std::move(cut.banned);
  return retention_of(planned.problem, cut.plan);
}

// Calls the function of the strategy. What else depends on the strategy is a field of
// StrategyTraits.
RetentionPlan decide(const PlanRequest& request, PlannedGraph& planned) {
  const auto& problem = planned.problem;
  const auto& options = request.options;
  const auto bytes = value_bytes(problem);
  const PlanInput input{request.joint, options, request.is_attribute, bytes};
  switch (options.strategy) {
    case StrategyKind::kNone:
      break;
    case StrategyKind::kAll:
      return retention_of(problem, plan_all_layers(input));
    case StrategyKind::kNames:
    case StrategyKind::kOps:
      return retention_of(problem, plan_words(input));
    case StrategyKind::kLayers:
      return retention_of(problem, plan_some_layers(input));
    case StrategyKind::kSegments:
      return leanest_of(problem, segment_plans(input));
    case StrategyKind::kMinCut:
      return decide_by_min_cut(request, planned);
    case StrategyKind::kBudget:
      return decide_by_budget(request, problem);
    case StrategyKind::kPlan:
      return plan_from_file(problem.problem, options.plan);
  }
  return retention_of(problem, save_everything(request.joint));
}

RegionBoundary boundary_of(const JointGraph& joint, const GraphProblem& problem) {
  const auto index_of = [&](const torch::jit::Value* value) {
    const auto found = problem.index.find(value);
    return found == problem.index.end() ? -1 : found->second;
  };
  RegionBoundary boundary;
  const auto inputs = joint.graph->inputs();
  for (size_t i = 0; i < joint.num_inputs; ++i)
    boundary.inputs.push_back(index_of(inputs[i]));
  const auto outputs = joint.graph->outputs();
  for (size_t i = 0; i < outputs.size(); ++i)
    (i < joint.num_outputs ? boundary.outputs : boundary.gradients).push_back(index_of(outputs[i]));
  return boundary;
}

// Returns the outputs that are gone when the backward begins, as values of the problem.
std::vector<int32_t> freed_before_backward(const PlanRequest& request,
                                           const RegionBoundary& boundary) {
  const auto& joint = request.joint;
  const auto& seen = request.seen.caller.freed_before_backward;
  std::vector<bool> is_freed(joint.num_outputs, request.options.release_outputs);
  for (size_t k = 0; k < std::min(seen.size(), joint.vjp_outputs.size()); ++k) {
    const auto output = joint.vjp_outputs[k];
    is_freed[output] = is_freed[output] || seen[k];
  }
  for (const auto output : request.method_memory.written_back)
    is_freed.at(output) = true;
  std::vector<int32_t> values;
  for (size_t i = 0; i < joint.num_outputs; ++i) {
    if (is_freed[i] && boundary.outputs[i] >= 0)
      values.push_back(boundary.outputs[i]);
  }
  return values;
}

// Returns whether gradients are added to those of other backwards of the same step.
bool has_several_backwards(const CallerAssumptions& caller) {
  return caller.other_calls > 0.0 || caller.retained > 1.0;
}

// Writes what earlier calls have shown of the caller into the problem.
void note_caller(const PlanRequest& request, const RegionBoundary& boundary, Problem& problem) {
  problem.freed_before_backward = freed_before_backward(request, boundary);
  const auto incoming = static_cast<double>(problem.loss_bytes);
  const auto& caller = request.seen.caller;
  problem.loss_bytes = static_cast<int64_t>(caller.loss_factor.value_or(1.0) * incoming);
  problem.held_by_caller = static_cast<int64_t>(caller.held_factor * incoming);
  problem.other_calls = caller.other_calls;
  problem.retains_graph = caller.retained > 0.0;
  problem.repeats_backward = caller.retained > 1.0;
  for (size_t i = 0; has_several_backwards(caller) && i < boundary.gradients.size(); ++i) {
    if (boundary.gradients[i] >= 0 && request.is_attribute[request.joint.gradient_inputs[i]])
      problem.added_results.push_back(boundary.gradients[i]);
  }
}

// Counts the copies that the method makes for the region: they are there during the whole step.
void count_copies(const PlanRequest& request, const RegionBoundary& boundary, Problem& problem) {
  for (const auto input : request.method_memory.copies) {
    const auto value = boundary.inputs.at(input);
    if (value < 0)
      continue;
    for (const auto storage : problem.storages[value])
      problem.held[storage] = 0;
    problem.results.push_back(value);
  }
}

// Returns the plan of a region with a profile, but for its metrics.
RegionPlan unfinished_plan(const PlanRequest& request, const GraphProblem& problem,
                           RegionBoundary boundary) {
  RegionPlan plan;
  plan.problem = std::make_shared<Problem>(problem.problem);
  plan.unplanned =
      std::make_shared<RetentionPlan>(retention_of(problem, save_everything(request.joint)));
  plan.boundary = std::move(boundary);
  plan.assumed = request.seen;
  plan.data_sizes = request.profile->data_sizes;
  plan.described_outputs = request.profile->outputs;
  plan.metrics.num_classes = request.profile->num_classes;
  plan.metrics.profile_seconds = request.profile->seconds;
  for (size_t i = 0; i < problem.nodes.size(); ++i) {
    if (problem.nodes[i]->hasAttribute(symbols::kDataSizes))
      plan.data_nodes.emplace_back(i, problem.nodes[i]->i(symbols::kDataSizes));
  }
  return plan;
}

// Simulates the step under `retention`, which becomes the plan's, and returns its schedule.
std::vector<Step> finish_plan(RegionPlan& plan, const RetentionPlan& retention) {
  Simulator simulator(*plan.problem);
  auto metrics = metrics_of(simulator, retention, *plan.unplanned);
  metrics.num_classes = plan.metrics.num_classes;
  metrics.profile_seconds = plan.metrics.profile_seconds;
  plan.metrics = metrics;
  plan.retention = std::make_shared<RetentionPlan>(retention);
  return simulator.steps();
}

}  // namespace

GraphProblem problem_of(const JointGraph& joint, const Profile* profile, const Options& options,
                        const std::vector<bool>& is_attribute, const CallerAssumptions& caller) {
  // Gradients of several backwards are added up before they are added to existing ones.
  const bool is_added_at_once = options.accumulate && !has_several_backwards(caller);
  return make_problem(joint, profile, is_added_at_once ? is_attribute : std::vector<bool>{});
}

PlannedGraph plan_region(const PlanRequest& request) {
  const auto start = Clock::now();
  PlannedGraph planned;
  planned.problem = problem_of(request.joint, request.profile, request.options,
                               request.is_attribute, request.seen.caller);
  if (traits_of(request.options).keeps_budget)
    obey_tags(planned.problem);
  auto boundary = boundary_of(request.joint, planned.problem);
  note_caller(request, boundary, planned.problem.problem);
  count_copies(request, boundary, planned.problem.problem);
  planned.unmatched = unmatched_words(request.joint, request.options);
  const auto retention = decide(request, planned);
  if (request.profile != nullptr) {
    planned.plan = unfinished_plan(request, planned.problem, std::move(boundary));
    planned.steps = finish_plan(*planned.plan, retention);
    auto& metrics = planned.plan->metrics;
    metrics.fraction_counts_from = fraction_counts_from(
        request.options, metrics.unplanned_peak_bytes, request.largest_unplanned_bytes);
  } else {
    Simulator simulator(planned.problem.problem);
    simulator.run(retention);
    planned.steps = simulator.steps();
  }
  planned.seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return planned;
}

PlannedGraph follow_plan(const JointGraph& joint, const RegionPlan& before,
                         const RetentionPlan& retention, const std::vector<int32_t>& not_held) {
  PlannedGraph planned;
  planned.problem = make_problem(joint, nullptr);
  TORCH_INTERNAL_ASSERT(planned.problem.problem.num_all_nodes() ==
                            before.problem->num_all_nodes() &&
                        planned.problem.problem.num_values() == before.problem->num_values());
  planned.problem.problem = *before.problem;
  std::erase_if(planned.problem.problem.results, [&](int32_t value) {
    return std::find(not_held.begin(), not_held.end(), value) != not_held.end();
  });
  for (const auto& [node, first] : before.data_nodes)
    planned.problem.nodes[node]->i_(symbols::kDataSizes, first);
  planned.plan = before;
  if (!not_held.empty()) {
    planned.plan->of_method = before.of_method == nullptr ? before.problem : before.of_method;
    planned.plan->problem = std::make_shared<const Problem>(planned.problem.problem);
  }
  planned.steps = finish_plan(*planned.plan, retention);
  return planned;
}

Options without_profile(Options options, const std::string& why) {
  const bool has_budget = traits_of(options).plans_whole_calls;
  log_warning(LogTopic::kProfile,
              (has_budget ? "memory_budget may be exceeded: a region cannot be profiled, and keeps "
                            "nothing but the inputs of its layers: "
                          : "a region keeps everything that its backward needs: ") +
                  why.substr(0, why.find('\n')));
  options.strategy = has_budget ? StrategyKind::kAll : StrategyKind::kNone;
  return options;
}

}  // namespace aten_recompute
