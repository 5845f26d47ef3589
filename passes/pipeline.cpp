#include "passes/pipeline.h"

#include <ATen/Parallel.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <iomanip>
#include <optional>
#include <sstream>
#include <string_view>

#include "common/log.h"
#include "common/user_error.h"
#include "ir/node_traits.h"
#include "ir/save_plan.h"
#include "ir/symbols.h"
#include "passes/autodiff/alternatives.h"
#include "passes/autodiff/differentiate.h"
#include "passes/autodiff/name_values.h"
#include "passes/frontend/path/path_builder.h"
#include "passes/frontend/path/path_guard.h"
#include "passes/frontend/path/record_path.h"
#include "passes/frontend/rewrites/assign_layers.h"
#include "passes/frontend/rewrites/autocast_blocks.h"
#include "passes/frontend/rewrites/inline_modules.h"
#include "passes/frontend/rewrites/not_recordable.h"
#include "passes/manager/pass_manager.h"
#include "passes/partition/extract.h"
#include "passes/partition/splice.h"
#include "passes/partition/split_sums.h"
#include "passes/partition/undefined_gradients.h"
#include "passes/profile/profile.h"
#include "passes/region/channels_last.h"
#include "passes/region/fuse_batch_norm.h"
#include "passes/strategy/graph_problem.h"
#include "passes/strategy/plan_region.h"
#include "passes/strategy/strategies.h"
#include "passes/strategy/tags.h"
#include "planner/model/plan_file.h"
#include "planner/search/budget.h"
#include "rules/kernels/batch_norm.h"
#include "rules/kernels/random_mask.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Value;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// What comes before the plan: the joint graph, with the alternatives that the strategy chooses
// from. Notes in `graphs` what is known then.
JointGraph differentiate_region(const std::shared_ptr<Graph>& forward, const RegionInput& input,
                                RegionGraphs& graphs) {
  JointGraph joint;
  run_pass(Pass::kDifferentiate, joint.graph, [&] {
    const std::vector<bool> all(forward->outputs().size(), true);
    joint = differentiate(forward, input.requires_grad, all);
  });
  run_pass(Pass::kNameValues, joint.graph, [&] { name_values(joint); });
  graphs.operators = joint.operators;
  if (input.options.save_ir)
    graphs.captured = std::make_shared<torch::jit::Gradient>(extract(joint));
  if (input.options.strategy == StrategyKind::kBudget ||
      input.options.strategy == StrategyKind::kPlan) {
    run_pass(Pass::kAlternatives, joint.graph, [&] { add_alternatives(joint); });
  }
  return joint;
}

// A region's forward with the channels of its images last; nullptr where nothing changes.
std::shared_ptr<Graph> put_channels_last(const std::shared_ptr<Graph>& forward) {
  auto graph = forward;
  run_pass(Pass::kChannelsLast, graph, [&] {
    if (auto changed = with_channels_last(*forward))
      graph = std::move(changed);
  });
  return graph == forward ? nullptr : graph;
}

// The other strategies speak of operators or layers, as the program has them.
bool may_fuse(const Options& options) {
  return options.fuse &&
         (options.strategy == StrategyKind::kNone || options.strategy == StrategyKind::kBudget ||
          options.strategy == StrategyKind::kPlan || options.strategy == StrategyKind::kSegments);
}

// Fused operators have kernels for these only. Otherwise they would have to compute some results
// again.
bool fit_fused_kernels(const RegionInput& region) {
  const auto& inputs = region.inputs;
  return std::all_of(inputs.begin(), inputs.end(), [&](const c10::IValue& input) {
    if (!input.isTensor() || !input.toTensor().defined())
      return true;
    const auto& tensor = input.toTensor();
    return region.described.value_or(tensor.device()).is_cpu() &&
           (!tensor.is_floating_point() || tensor.scalar_type() == at::kFloat ||
            tensor.scalar_type() == at::kDouble);
  });
}

// Returns whether operators are fused for these options and inputs.
bool fuses(const RegionInput& input) {
  choose_batch_norm_kernels();
  choose_mask_kernel();
  return may_fuse(input.options) && fit_fused_kernels(input);
}

// Returns the forward that is compiled for a region whose images keep their layout: the given
// graph, or one with fused operators if `is_fused`, and if there are some to fuse.
std::shared_ptr<Graph> fused_forward(const std::shared_ptr<Graph>& forward, bool is_fused) {
  auto graph = forward;
  if (!is_fused)
    return graph;
  run_pass(Pass::kFuseBatchNorm, graph, [&] {
    if (auto changed = with_fused_batch_norms(*forward))
      graph = std::move(changed);
  });
  return graph;
}

// For tests, which cannot rely on what is faster.
bool always_channels_last() {
  const char* value = std::getenv("ATEN_RECOMPUTE_CHANNELS_LAST");
  return value != nullptr && std::string_view(value) == "always";
}

// A region of which costs are not known: a budget is kept as well as can be, by computing again all
// that can be.
void do_without_profile(Options& options, const std::string& why) {
  const bool has_budget =
      options.strategy == StrategyKind::kBudget || options.strategy == StrategyKind::kPlan;
  log_warning(LogTopic::kProfile,
              (has_budget ? "memory_budget may be exceeded: a region cannot be profiled, and keeps "
                            "nothing but the inputs of its layers: "
                          : "a region keeps everything that its backward needs: ") +
                  why.substr(0, why.find('\n')));
  options.strategy = has_budget ? StrategyKind::kAll : StrategyKind::kNone;
}

RegionBoundary ends_of(const JointGraph& joint, const GraphProblem& problem) {
  auto index_of = [&](const torch::jit::Value* value) {
    const auto found = problem.index.find(value);
    return found == problem.index.end() ? -1 : found->second;
  };
  RegionBoundary ends;
  const auto inputs = joint.graph->inputs();
  for (size_t i = 0; i < joint.num_inputs; ++i)
    ends.inputs.push_back(index_of(inputs[i]));
  const auto outputs = joint.graph->outputs();
  for (size_t i = 0; i < outputs.size(); ++i)
    (i < joint.num_outputs ? ends.outputs : ends.gradients).push_back(index_of(outputs[i]));
  return ends;
}

// Outputs that are gone when the backward begins, as values of the problem.
std::vector<int32_t> freed_before_backward(const JointGraph& joint, const RegionBoundary& ends,
                                           const RegionInput& input) {
  std::vector<bool> is_freed_before_backward(joint.num_outputs, input.options.release_outputs);
  for (size_t k = 0;
       k < std::min(input.seen.freed_before_backward.size(), joint.vjp_outputs.size()); ++k) {
    const auto output = joint.vjp_outputs[k];
    is_freed_before_backward[output] =
        is_freed_before_backward[output] || input.seen.freed_before_backward[k];
  }
  std::vector<int32_t> values;
  for (size_t i = 0; i < joint.num_outputs; ++i) {
    if (is_freed_before_backward[i] && ends.outputs[i] >= 0)
      values.push_back(ends.outputs[i]);
  }
  return values;
}

// What comes after the plan.
void finish_region(JointGraph& joint, const GraphProblem& problem, const std::vector<Step>& steps,
                   RegionGraphs& graphs) {
  run_pass(Pass::kSplice, joint.graph, [&] { splice(joint, problem, steps); });
  run_pass(Pass::kExtract, graphs.gradient.df, [&] { graphs.gradient = extract(joint); });
  for (auto* value : captured_values(joint))
    graphs.saved.push_back(value->debugName());
  for (auto* node : graphs.gradient.df->nodes()) {
    if (!node->hasAttribute(symbols::kRecomputed))
      continue;
    for (auto* output : node->outputs())
      graphs.recomputed.push_back(output->debugName());
  }
  finish_backward(graphs);
}

// Returns the value whose memory this one is in.
Value* memory_of(Value* value) {
  while (!value->node()->inputs().empty() &&
         (may_alias_an_argument(value->node()) || mutates_an_argument(value->node()) ||
          is_cast(value->node())))
    value = value->node()->input(0);
  return value;
}

// Returns the attributes that the graph writes to; nullopt if it writes to something else that the
// caller can see.
std::optional<std::vector<std::vector<std::string>>> written_attributes(Graph& graph) {
  std::vector<std::vector<std::string>> written;
  for (auto* node : graph.nodes()) {
    const bool updates = updates_hidden_state(node);
    if ((!updates && !mutates_an_argument(node)) || node->kind() == c10::aten::requires_grad_)
      continue;
    for (auto* input : node->inputs()) {
      if (!is_tensor_type(*input->type()))
        continue;
      auto* memory = memory_of(input);
      const auto path = path_from_root(memory, graph);
      if (path)
        written.push_back(*path);
      else if (!updates && !makes_new_tensor(memory))
        return std::nullopt;
      if (!updates)
        break;
    }
  }
  return written;
}

// Compiles the method for the path that this call takes. Returns nullopt if that is not possible.
std::optional<PreparedMethod> prepare_path(const std::shared_ptr<Graph>& inlined,
                                           const MethodInput& input) {
  std::optional<RecordedPath> path;
  run_pass(Pass::kRecordPath, [&] {
    try {
      path = record_path(inlined, input.self, input.inputs, input.kept_branches);
    } catch (const NotRecordable& error) {
      log_info(LogTopic::kPaths, std::string("a method keeps its control flow: ") + error.what());
    }
  });
  if (!path)
    return std::nullopt;
  if (log_enabled(LogTopic::kPaths, LogLevel::kInfo)) {
    const auto nodes = path->graph->nodes();
    log_info(LogTopic::kPaths, "the path of a call was recorded: " +
                                   std::to_string(std::distance(nodes.begin(), nodes.end())) +
                                   " operators");
  }
  PreparedMethod method;
  method.graph = path->graph;
  auto guard = std::make_shared<PathGuard>(*path);
  method.assumptions = fold_call(method.graph, input.self, input.inputs);
  prepare_recorded(method.graph, input.self, method.assumptions);
  method.assumptions.path = std::move(guard);
  auto& attributes = method.assumptions.attributes;
  attributes.insert(attributes.end(), path->attributes.begin(), path->attributes.end());
  method.checks = number_checks(*method.graph);
  method.has_late_changes = path->has_changes;
  if (method.may_leave_path() || method.has_late_changes) {
    auto written = written_attributes(*method.graph);
    if (!written)
      return std::nullopt;
    method.written = std::move(*written);
  }
  run_pass(Pass::kFormRegions, method.graph, [&] { method.regions = form_regions(method.graph); });
  return method;
}

// Returns whether the graph reads a tensor from a list that it puts together, by an index that is
// not constant. The passes that make lists functional have no answer to that.
bool reads_own_lists(Graph& graph) {
  bool found = false;
  for_each_node(graph.block(), [&](const torch::jit::Node* node) {
    found = found || (node->kind() == c10::aten::__getitem__ &&
                      node->input(0)->node()->kind() == c10::prim::ListConstruct &&
                      contains_tensor(*node->output()->type()));
  });
  return found;
}

// Compiles a region with the channels of its images last if `channels_last` is its forward in that
// layout, or as it is if it is nullptr.
RegionGraphs compile_forward(const std::shared_ptr<Graph>& channels_last,
                             const RegionInput& given) {
  auto input = given;
  RegionGraphs graphs;
  graphs.source = input.graph;
  graphs.channels_last = channels_last != nullptr;
  graphs.is_fused = !graphs.channels_last && fuses(input);
  const auto forward =
      graphs.channels_last ? channels_last : fused_forward(input.graph, graphs.is_fused);
  auto joint = differentiate_region(forward, input, graphs);
  std::optional<Profile> costs;
  if (needs_profile(input.options)) {
    run_pass(Pass::kProfile, [&] {
      try {
        costs = profile(joint, input.inputs, input.options.cost_model, input.seen, input.described);
        graphs.data_sizes = costs->data_sizes;
        graphs.described_outputs = costs->outputs;
        graphs.assumed = input.seen;
        if (log_enabled(LogTopic::kProfile, LogLevel::kInfo)) {
          log_info(LogTopic::kProfile,
                   "a region of " + std::to_string(costs->nodes.size()) + " operators, of which " +
                       std::to_string(costs->num_classes) + " kinds ran, was profiled in " +
                       std::to_string(costs->seconds) + " s");
        }
      } catch (const NotProfiled& error) {
        if (error.inputs_are_to_blame())
          throw;
        do_without_profile(input.options, error.what());
      }
    });
  }
  GraphProblem problem;
  std::vector<Step> steps;
  run_pass(Pass::kPlan, [&] {
    const auto start = std::chrono::steady_clock::now();
    problem = make_problem(joint, costs ? &*costs : nullptr,
                           input.options.accumulate ? input.is_attribute : std::vector<bool>{});
    if (input.options.strategy == StrategyKind::kBudget)
      obey_tags(problem);
    graphs.ends = ends_of(joint, problem);
    problem.problem.freed_before_backward = freed_before_backward(joint, graphs.ends, input);
    const auto incoming = static_cast<double>(problem.problem.loss_bytes);
    problem.problem.loss_bytes =
        static_cast<int64_t>(input.seen.loss_factor.value_or(1.0) * incoming);
    problem.problem.held_by_caller = static_cast<int64_t>(input.seen.held_factor * incoming);
    graphs.unmatched = unmatched_words(joint, input.options);
    Simulator simulator(problem.problem);
    const auto decisions = plan_region({joint, problem, costs, input.options, input.is_attribute,
                                        input.leanest, input.known, input.largest_unplanned_bytes},
                                       &graphs.banned);
    const auto planned = simulator.run(decisions);
    steps = simulator.steps();
    if (costs) {
      graphs.unplanned =
          std::make_shared<RetentionPlan>(decisions_of(problem, save_everything(joint)));
      const auto unplanned = simulator.run(*graphs.unplanned);
      graphs.figures = figures_of(problem.problem, planned, unplanned);
      graphs.figures.fraction_counts_from =
          fraction_counts_from(input.options, unplanned.peak_bytes, input.largest_unplanned_bytes);
      graphs.figures.num_classes = costs->num_classes;
      graphs.figures.profile_seconds = costs->seconds;
      graphs.problem = std::make_shared<Problem>(problem.problem);
      graphs.decisions = std::make_shared<RetentionPlan>(decisions);
    }
    for (size_t i = 0; i < problem.nodes.size(); ++i) {
      if (problem.nodes[i]->hasAttribute(symbols::kDataSizes))
        graphs.data_nodes.emplace_back(i, problem.nodes[i]->i(symbols::kDataSizes));
    }
    graphs.figures.plan_seconds = seconds_since(start);
  });
  finish_region(joint, problem, steps, graphs);
  return graphs;
}

// Compiles the region as it is and with `changed` as its forward, and returns what takes less time
// by its plan. Throws what the region as it is throws, if both throw: a budget may be out of reach
// of one of them only, and a plan file belongs to one of them.
RegionGraphs faster_of_layouts(const std::shared_ptr<Graph>& changed, const RegionInput& input) {
  std::exception_ptr error;
  const auto compile =
      [&](const std::shared_ptr<Graph>& channels_last) -> std::optional<RegionGraphs> {
    const auto note_error = [&] {
      if (error == nullptr)
        error = std::current_exception();
      return std::nullopt;
    };
    try {
      return compile_forward(channels_last, input);
    } catch (const UserError&) {
      return note_error();
    } catch (const std::invalid_argument&) {
      return note_error();
    }
  };
  auto first = compile(nullptr);
  if (first && first->problem == nullptr)
    return std::move(*first);  // it could not be measured
  auto last = compile(changed);
  if (!first && !last)
    std::rethrow_exception(error);
  if (!first || !last)
    return std::move(first ? *first : *last);
  const auto seconds_first = first->figures.predicted_seconds;
  const auto seconds_last = last->figures.predicted_seconds;
  log_info(LogTopic::kProfile, "operators take " + std::to_string(seconds_last) +
                                   " s per step with channels last, " +
                                   std::to_string(seconds_first) + " s otherwise");
  return std::move(last->problem != nullptr && seconds_last < seconds_first ? *last : *first);
}

}  // namespace

PlanMetrics figures_of(const Problem& problem, const Simulation& planned,
                       const Simulation& unplanned) {
  PlanMetrics figures;
  figures.predicted_peak_bytes = planned.peak_bytes;
  figures.unplanned_peak_bytes = unplanned.peak_bytes;
  figures.fraction_counts_from = unplanned.peak_bytes;
  figures.predicted_saved_bytes = planned.saved_bytes;
  figures.predicted_seconds = problem.base_seconds() + planned.recompute_seconds;
  figures.unplanned_seconds = problem.base_seconds() + unplanned.recompute_seconds;
  figures.num_nodes = problem.num_nodes;
  return figures;
}

std::string describe(const PlanMetrics& figures) {
  std::ostringstream text;
  text << "; predicted peak " << figures.predicted_peak_bytes << " bytes of "
       << figures.unplanned_peak_bytes << " without recomputation";
  if (figures.unplanned_seconds > 0.0)
    text << ", " << std::setprecision(3) << figures.predicted_seconds / figures.unplanned_seconds
         << " times its time";
  return text.str();
}

void finish_backward(RegionGraphs& graphs) {
  auto& backward = graphs.gradient.df;
  run_pass(Pass::kSplitSums, backward, [&] { graphs.summand_of = split_sums(*backward); });
  run_pass(Pass::kUndefinedGradients, backward,
           [&] { allow_undefined_gradients(*backward, graphs.gradient.df_input_vjps.size()); });
}

std::shared_ptr<Graph> inline_method(Graph& given) {
  auto graph = given.copy();
  run_pass(Pass::kInlineModules, graph, [&] { inline_modules(graph); });
  run_pass(Pass::kAutocastBlocks, graph, [&] { autocast_blocks(*graph); });
  return graph;
}

void check_layer_pattern(Graph& method, const std::string& pattern) {
  assign_layers(inline_method(method), pattern);
}

PreparedMethod prepare_method(const MethodInput& input) {
  auto inlined = inline_method(*input.graph);
  run_pass(Pass::kAssignLayers, inlined, [&] { assign_layers(inlined, input.layer_pattern); });
  PreparedMethod method;
  method.graph = inlined->copy();
  method.assumptions = fold_call(method.graph, input.self, input.inputs);
  auto may_record_path = input.may_record_path;
  // The passes that could make such a method straight take longer than to record it.
  if (may_record_path && !is_straight_line(*method.graph)) {
    if (auto recorded = prepare_path(inlined, input))
      return std::move(*recorded);
    may_record_path = false;
  }
  prepare(method.graph, input.self, method.assumptions);
  const bool reads_lists = reads_own_lists(*method.graph);
  run_pass(Pass::kFormRegions, method.graph, [&] { method.regions = form_regions(method.graph); });
  const bool is_whole =
      method.regions.nodes.size() <= 1 && method.regions.breaks.empty() && !reads_lists &&
      std::none_of(method.regions.nodes.begin(), method.regions.nodes.end(), is_in_a_loop);
  if (is_whole || !may_record_path)
    return method;
  auto recorded = prepare_path(inlined, input);
  return recorded ? std::move(*recorded) : std::move(method);
}

bool may_change_layouts(const Options& options, const std::vector<c10::IValue>& inputs) {
  return !options.exact && are_in_order(inputs);
}

RegionGraphs compile_region(const RegionInput& input) {
  const UseRules guard(input.rules);
  const bool may_change = input.channels_last.value_or(true) &&
                          input.options.cost_model == CostModel::kMeasured &&
                          may_change_layouts(input.options, input.inputs);
  const auto changed = may_change ? put_channels_last(input.graph) : nullptr;
  if (changed == nullptr)
    return compile_forward(nullptr, input);
  if (input.channels_last || always_channels_last())
    return compile_forward(changed, input);
  return faster_of_layouts(changed, input);
}

RegionProfile profile_region(const RegionInput& input) {
  const UseRules guard(input.rules);
  RegionProfile region;
  RegionGraphs graphs;
  region.joint = differentiate_region(fused_forward(input.graph, fuses(input)), input, graphs);
  run_pass(Pass::kProfile, [&] {
    region.costs =
        profile(region.joint, input.inputs, input.options.cost_model, input.seen, input.described);
  });
  region.problem =
      make_problem(region.joint, &region.costs,
                   input.options.accumulate ? input.is_attribute : std::vector<bool>{});
  return region;
}

RegionGraphs recompile_with_plan(const RegionInput& input, const RegionGraphs& before,
                                 const RetentionPlan& decisions) {
  const UseRules guard(input.rules);
  RegionGraphs graphs;
  graphs.source = input.graph;
  graphs.channels_last = before.channels_last;
  graphs.is_fused = before.is_fused;
  auto joint =
      differentiate_region(before.channels_last ? put_channels_last(input.graph)
                                                : fused_forward(input.graph, before.is_fused),
                           input, graphs);
  // The same graph, node by node; what only a profile knows of it comes from before.
  auto problem = make_problem(joint, nullptr);
  TORCH_INTERNAL_ASSERT(problem.problem.num_all_nodes() == before.problem->num_all_nodes() &&
                        problem.problem.num_values() == before.problem->num_values());
  problem.problem = *before.problem;
  graphs.data_sizes = before.data_sizes;
  graphs.assumed = before.assumed;
  graphs.data_nodes = before.data_nodes;
  for (const auto& [node, first] : graphs.data_nodes)
    problem.nodes[node]->i_(symbols::kDataSizes, first);
  Simulator simulator(problem.problem);
  const auto unplanned = simulator.run(*before.unplanned);
  const auto planned = simulator.run(decisions);
  graphs.figures = figures_of(problem.problem, planned, unplanned);
  graphs.figures.num_classes = before.figures.num_classes;
  graphs.figures.profile_seconds = before.figures.profile_seconds;
  graphs.problem = before.problem;
  graphs.decisions = std::make_shared<RetentionPlan>(decisions);
  graphs.unplanned = before.unplanned;
  graphs.ends = before.ends;
  finish_region(joint, problem, simulator.steps(), graphs);
  return graphs;
}

}  // namespace aten_recompute
