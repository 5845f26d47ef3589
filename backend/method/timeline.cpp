#include <aten_recompute/timeline.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "backend/method/arena_blocks.h"
#include "backend/method/planned_methods.h"
#include "backend/method/step_problems.h"
#include "backend/pictures/shared_texts.h"
#include "planner/addresses/place_blocks.h"
#include "planner/model/method_problem.h"
#include "planner/model/step_blocks.h"
#include "planner/search/search.h"

namespace aten_recompute {
namespace {

using nlohmann::json;

struct ChartTexts {
  SharedTexts names, layers, sources;
};

std::string operator_name(const Problem& problem, int32_t node) {
  const auto& name = problem.node_names[node];
  return is_border(name) ? "between regions" : name;
}

json moments_of(const Problem& problem, const StepMemoryWalk& walk, ChartTexts& texts) {
  std::vector<int32_t> names, layers, sources, kinds;
  std::vector<double> seconds;
  std::vector<int64_t> bytes;
  for (const auto& moment : walk.moments) {
    const auto node = moment.node;
    names.push_back(texts.names.index_of(node < 0 ? "loss" : operator_name(problem, node)));
    layers.push_back(node < 0 ? -1 : texts.layers.index_of(problem.layer_of(node)));
    sources.push_back(node < 0 ? -1 : texts.sources.index_of(problem.source_of(node)));
    kinds.push_back(static_cast<int32_t>(moment.kind));
    seconds.push_back(moment.seconds);
    bytes.push_back(moment.bytes);
  }
  return {{"name", names}, {"layer", layers},    {"source", sources},
          {"kind", kinds}, {"seconds", seconds}, {"bytes", bytes}};
}

std::string block_name(const Problem& problem, const MemoryBlock& block) {
  if (block.value >= 0) {
    // Values without a name of their own have a number.
    const auto& name = problem.value_names[block.value];
    const auto producer = problem.producer[block.value];
    const bool is_number = name.find_first_not_of("0123456789") == std::string::npos;
    return is_number && producer >= 0 ? name + " of " + operator_name(problem, producer) : name;
  }
  if (block.node >= 0)
    return "workspace of " + operator_name(problem, block.node);
  return block.kind == BlockKind::kGiven ? "other calls and backwards" : "loss";
}

json blocks_of(const Problem& problem, const StepMemoryWalk& walk, ChartTexts& texts) {
  std::vector<Block> to_place;
  for (const auto& block : walk.blocks)
    to_place.push_back({block.bytes, block.begin, block.end});
  const auto placement = PlacementSearch(to_place, PlacementOptions{}.alignment).placement();

  std::vector<int32_t> names, layers, sources, kinds, begins, ends;
  std::vector<int64_t> bytes;
  for (const auto& block : walk.blocks) {
    const auto node = block.value >= 0 ? problem.producer[block.value] : block.node;
    names.push_back(texts.names.index_of(block_name(problem, block)));
    layers.push_back(node < 0 ? -1 : texts.layers.index_of(problem.layer_of(node)));
    sources.push_back(node < 0 ? -1 : texts.sources.index_of(problem.source_of(node)));
    kinds.push_back(static_cast<int32_t>(block.kind));
    begins.push_back(block.begin);
    ends.push_back(block.end);
    bytes.push_back(block.bytes);
  }
  return {{"name", names},
          {"layer", layers},
          {"source", sources},
          {"kind", kinds},
          {"begin", begins},
          {"end", ends},
          {"bytes", bytes},
          {"offset", placement.offsets},
          {"arena_bytes", placement.arena_bytes}};
}

json walk_of(const Problem& problem, const RetentionPlan& plan, ChartTexts& texts) {
  const auto walk = walk_step(problem, plan);
  double seconds = 0.0;
  for (const auto& moment : walk.moments)
    seconds += moment.seconds;
  return {{"peak_bytes", walk.simulation.peak_bytes},
          {"saved_bytes", walk.simulation.saved_bytes},
          {"seconds", seconds},
          {"moments", moments_of(problem, walk, texts)},
          {"blocks", blocks_of(problem, walk, texts)}};
}

json tradeoff_of(const StepProblem& step) {
  SearchEffort effort;
  effort.num_threads = static_cast<size_t>(at::get_num_threads());
  auto points = json::array();
  for (const auto& plan : search_frontier(*step.problem, step.unplanned, effort)) {
    points.push_back(
        {{"peak_bytes", plan.simulation.peak_bytes},
         {"saved_bytes", plan.simulation.saved_bytes},
         {"seconds", step.problem->base_seconds() + plan.simulation.recompute_seconds}});
  }
  return points;
}

json chart_of(const StepProblem& step, bool tradeoff) {
  const auto& problem = *step.problem;
  ChartTexts texts;
  json chart{{"region", step.region},
             {"budget_bytes", step.budget_bytes},
             {"has_times", std::any_of(problem.seconds.begin(), problem.seconds.end(),
                                       [](double seconds) { return seconds > 0.0; })},
             {"planned", walk_of(problem, step.planned, texts)},
             {"unplanned", walk_of(problem, step.unplanned, texts)}};
  chart["names"] = texts.names.all();
  chart["layers"] = texts.layers.all();
  chart["sources"] = texts.sources.all();
  if (tradeoff)
    chart["tradeoff"] = tradeoff_of(step);
  return chart;
}

std::string timeline_of(const PlannedMethods& planned, bool tradeoff) {
  auto methods = json::array();
  for (const auto& method : planned) {
    auto charts = json::array();
    const auto call = method->latest_call();
    if (!call.runs.empty()) {
      for (const auto& step : step_problems(call, method->options()))
        charts.push_back(chart_of(step, tradeoff));
    }
    methods.push_back({{"method", method->name()},
                       {"class", method->class_name()},
                       {"has_run", !call.runs.empty()},
                       {"charts", charts},
                       {"arena", arena_blocks_of(call)}});
  }
  return json{
      {"format", "aten_recompute.timeline/1"},
      {"moment_kinds", {"forward", "recomputed", "backward", "loss"}},
      {"block_kinds",
       {"kept", "dropped", "temporary", "recomputed", "backward", "given", "workspace", "loss"}},
      {"methods", methods}}
      .dump(-1, ' ', false, json::error_handler_t::replace);  // names of files are any bytes
}

}  // namespace

std::string timeline(const torch::jit::Module& module, bool tradeoff) {
  return timeline_of(planned_methods_of(module, "timeline"), tradeoff);
}

std::string timeline(torch::jit::Function& function, bool tradeoff) {
  return timeline_of(planned_methods_of(function, "timeline"), tradeoff);
}

}  // namespace aten_recompute
