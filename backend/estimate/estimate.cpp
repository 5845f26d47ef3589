#include "backend/estimate/estimate.h"

#include <aten_recompute/estimate.h>
#include <aten_recompute/one_line.h>

#include <ATen/Parallel.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/variable.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <utility>

#include "backend/autograd/region_call.h"
#include "backend/estimate/meta_module.h"
#include "backend/estimate/region_walk.h"
#include "backend/planning/region_dataflow.h"
#include "common/parse_options.h"
#include "common/torch_compat.h"
#include "common/user_error.h"
#include "planner/model/method_problem.h"
#include "planner/model/simulator.h"
#include "planner/search/budget.h"
#include "planner/search/search.h"
#include "runtime/one_line_errors.h"

namespace aten_recompute {
namespace {

using c10::IValue;
using nlohmann::json;

}  // namespace

std::optional<at::Device> device_of(const EstimateOptions& options) {
  if (options.device.empty())
    return std::nullopt;
  try {
    return at::Device(options.device);
  } catch (const std::exception&) {
    throw std::invalid_argument("device: \"" + options.device +
                                "\" is none; \"cpu\" and \"cuda\" are");
  }
}

RegionWalk walk_on_meta(const MetaCall& call, const std::string& method, const Options& options,
                        const RunRegion& run_region) {
  std::string why;
  try {
    return walk_regions(call.module, method, call.inputs, options, /*on_meta=*/true, run_region);
  } catch (const NotProfiled& error) {
    why = error.what();
  } catch (const NotDifferentiable& error) {
    why = error.what();
  } catch (const UserError&) {
    throw;
  } catch (const std::invalid_argument&) {
    throw;
  } catch (const std::exception& error) {
    const std::string name = "RuntimeError: ";
    why = one_line(error);
    why = "data decide what the method does, or an operator needs them: " +
          (why.rfind(name, 0) == 0 ? why.substr(name.size()) : why);
  }
  throw UserError("the step is not known without running it: " + why);
}

namespace {

// Returns the options of a budget, as lower() would read them.
Options with_budget(const std::string& further, const std::string& budget) {
  auto spec = further.empty() ? json::object() : json::parse(further, nullptr, false);
  for (const char* key : {"strategy", "memory_budget", "time_budget", "plan"}) {
    if (spec.is_object() && spec.contains(key))
      throw std::invalid_argument(std::string("options: \"") + key +
                                  "\" does not belong here; budgets are given beside");
  }
  if (!spec.is_object())
    return parse_options(further);  // which says what is wrong
  spec["strategy"] = "budget";
  const auto number = json::parse(budget, nullptr, false);
  spec["memory_budget"] = number.is_number() ? number : json(budget);
  return parse_options(spec.dump());
}

// Stands for the backward of a region in the autograd graph.
struct RegionHistory : torch::autograd::Node {
  using torch::autograd::Node::Node;
  torch::autograd::variable_list apply(torch::autograd::variable_list&& /*gradients*/) override {
    throw std::logic_error("the backward of a region that was only described");
  }
  std::string name() const override { return "AtenRecomputeDescribed"; }
};

// The regions of a method, described one after the other, with what flows between them.
class DescribedRegions {
 public:
  DescribedRegions(const std::vector<IValue>& inputs, at::Device device)
      : device_(device), flow_(inputs) {}

  std::vector<IValue> run(Region& region, std::vector<IValue> inputs) {
    const auto input = region.compilation_of(inputs, device_);
    if (std::none_of(input.requires_grad.begin(), input.requires_grad.end(),
                     [](bool flag) { return flag; })) {
      torch::jit::Stack outputs;
      region.run_uncompiled(outputs, std::move(inputs));
      return outputs;
    }
    auto graphs = compile_region(input);
    auto outputs = std::exchange(graphs.plan.value().described_outputs, {});
    const auto compiled = std::make_shared<CompiledRegion>(std::move(graphs));
    const auto edges = gradient_edges(*compiled, inputs);
    flow_.begin_run(compiled, region.is_attribute(), inputs, kept_for_replay(*compiled, inputs),
                    edges);
    const auto history = make_node<RegionHistory>(torch::autograd::edge_list(edges));
    for (auto& output : outputs) {
      if (output.isTensor() && output.toTensor().defined())
        output = output.toTensor().variable_data();
    }
    flow_.end_run(outputs, history);
    for (auto i : compiled->gradient().df_input_vjps) {
      const auto& output = outputs[i].toTensor();
      if (torch::autograd::isDifferentiableType(output.scalar_type()))
        torch::autograd::set_history(output, history);
      else
        history->add_input_metadata(torch::autograd::Node::undefined_input());
    }
    compiled_.push_back(compiled);
    return outputs;
  }

  std::vector<RegionRun> runs(const IValue& result, const Options& options) const {
    return flow_.runs(result, options);
  }
  const std::vector<std::shared_ptr<const CompiledRegion>>& compiled() const { return compiled_; }

 private:
  // Returns which inputs live until the backward because a replay would read them.
  static std::vector<bool> kept_for_replay(const CompiledRegion& compiled,
                                           const std::vector<IValue>& inputs) {
    const auto captured = captured_inputs(compiled, inputs.size());
    std::vector<bool> kept(inputs.size(), false);
    for (size_t i = 0; i < inputs.size(); ++i) {
      kept[i] = !captured[i] &&
                !note_replay_input(i, inputs[i], compiled.written_inputs()[i]).maker.is_valid();
    }
    return kept;
  }

  at::Device device_;
  RegionDataflowRecorder flow_;
  std::vector<std::shared_ptr<const CompiledRegion>> compiled_;
};

// The planning problem of a step, and the plan that keeps all that the backward reads.
struct StepProblem {
  Problem problem;
  std::optional<RetentionPlan> unplanned;
};

StepProblem problem_of(const DescribedRegions& regions, const IValue& result,
                       const Options& options) {
  const auto& compiled = regions.compiled();
  if (compiled.empty())
    throw UserError("estimate: nothing in the method needs a gradient");
  if (compiled.size() == 1) {
    const auto& plan = *compiled.front()->plan();
    return {*plan.problem, *plan.unplanned};
  }
  const auto runs = regions.runs(result, options);
  std::vector<const RetentionPlan*> unplanned;
  for (const auto& each : compiled)
    unplanned.push_back(each->plan()->unplanned.get());
  auto whole = join(runs);
  auto keep_all = join_retentions(whole, runs, unplanned);
  return {std::move(whole.problem), std::move(keep_all)};
}

double flops_between(const Problem& problem, size_t begin, size_t end) {
  double flops = 0.0;
  for (size_t i = begin; i < end; ++i)
    flops += problem.flops[i];
  return flops;
}

json metrics(Simulator& simulator, const RetentionPlan& plan) {
  const auto& problem = simulator.problem();
  const auto simulation = simulator.run(plan);
  double recomputed = 0.0;
  for (const auto& step : simulator.steps()) {
    if (step.slot > 0 && step.node != problem.node_of(static_cast<size_t>(step.slot)))
      recomputed += problem.flops[step.node];
  }
  return {{"peak_bytes", simulation.peak_bytes},
          {"saved_bytes", simulation.saved_bytes},
          {"recomputed_flops", recomputed},
          {"time_factor", 1.0 + simulation.recompute_seconds / problem.base_seconds()}};
}

json estimate_step(const StepProblem& step, const std::vector<Options>& budgets,
                   const std::vector<std::string>& names) {
  const auto& problem = step.problem;
  Simulator simulator(problem);
  const auto unplanned = simulator.run(*step.unplanned);
  PlanSearch search(problem, *step.unplanned,
                    SearchEffort{.num_threads = static_cast<size_t>(at::get_num_threads())});
  const auto smallest = search.smallest_peak_bytes();
  json estimates = json::array();
  for (size_t i = 0; i < budgets.size(); ++i) {
    const auto limit = budget_bytes(budgets[i], unplanned.peak_bytes);
    json estimate = {{"budget", names[i]}, {"budget_bytes", limit}};
    const auto plan = unplanned.peak_bytes <= limit ? std::nullopt : search.fastest(limit);
    estimate["reachable"] = plan || unplanned.peak_bytes <= limit;
    if (estimate["reachable"]) {
      estimate.update(metrics(simulator, plan ? plan->retention : *step.unplanned));
    } else if (budgets[i].leanest_if_unreachable) {
      auto leanest = budgets[i];
      leanest.cost_model = CostModel::kFlops;
      estimate.update(metrics(simulator, plan_budget(problem, *step.unplanned, leanest)));
    }
    estimates.push_back(std::move(estimate));
  }
  json leanest = metrics(simulator, search.fastest(smallest)->retention);
  return {{"unplanned_peak_bytes", unplanned.peak_bytes},
          {"unplanned_saved_bytes", unplanned.saved_bytes},
          {"smallest_peak_bytes", smallest},
          {"smallest", std::move(leanest)},
          {"forward_flops", flops_between(problem, 0, problem.num_forward)},
          {"backward_flops", flops_between(problem, problem.num_forward, problem.num_nodes)},
          {"budgets", std::move(estimates)}};
}

}  // namespace

std::string estimate(const torch::jit::Module& module, const std::vector<IValue>& inputs,
                     const std::vector<std::string>& budgets, const EstimateOptions& options) try {
  const auto start = std::chrono::steady_clock::now();
  std::vector<Options> parsed;
  for (const auto& budget : budgets)
    parsed.push_back(with_budget(options.options, budget));
  // Keeps everything, and has the alternatives that the search chooses from.
  auto unlimited = with_budget(options.options, "1.0");
  unlimited.cost_model = CostModel::kFlops;
  const auto call =
      on_meta(module, with_defaults(module, options.method, inputs), device_of(options));
  const at::AutoGradMode grad_mode(true);
  DescribedRegions regions(call.inputs, call.device);
  const auto walk =
      walk_on_meta(call, options.method, unlimited, [&](Region& region, std::vector<IValue> given) {
        return regions.run(region, std::move(given));
      });
  auto result = estimate_step(problem_of(regions, walk.result, unlimited), parsed, budgets);
  result["device"] = call.device.str();
  result["regions"] = walk.num_regions;
  result["seconds"] =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result.dump();
} catch (const std::exception&) {
  rethrow_in_one_line();
}

}  // namespace aten_recompute
