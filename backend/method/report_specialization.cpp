#include "backend/method/report_specialization.h"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

#include "backend/method/specialization.h"
#include "planner/model/explain_peak.h"

namespace aten_recompute {
namespace {

using nlohmann::json;

// Returns, for each source of gradients, how often it served which operator:
//   {"rule": {"aten::mul.Tensor": 2}, "user_rule": {}, "tape": {}}
json counts(const DifferentiatedOperators& operators) {
  const auto count = [](const std::vector<std::string>& names) {
    std::map<std::string, size_t> counted;
    for (const auto& name : names)
      ++counted[name];
    return counted;
  };
  return {{"rule", count(operators.by_rule)},
          {"user_rule", count(operators.by_user_rule)},
          {"tape", count(operators.on_tape)}};
}

json to_json(const PlanMetrics& metrics) {
  return {{"peak_operator", json::parse(to_json(metrics.peak_operator))},
          {"predicted_peak_bytes", metrics.predicted_peak_bytes},
          {"unplanned_peak_bytes", metrics.unplanned_peak_bytes},
          {"predicted_saved_bytes", metrics.predicted_saved_bytes},
          {"outside_bytes", metrics.outside_bytes},
          {"other_calls", metrics.other_calls},
          {"predicted_seconds", metrics.predicted_seconds},
          {"unplanned_seconds", metrics.unplanned_seconds},
          {"profile_seconds", metrics.profile_seconds},
          {"plan_seconds", metrics.plan_seconds},
          {"nodes", metrics.num_nodes},
          {"profiled_classes", metrics.num_classes}};
}

json describe_arena(const ArenaFigures& figures) {
  return {{"bytes", figures.arena_bytes},
          {"alive_bytes", figures.alive_bytes},
          {"blocks", figures.num_blocks},
          {"steps", figures.num_steps},
          {"recorded_steps", figures.num_records},
          {"unforeseen_blocks", figures.num_unforeseen},
          {"unforeseen_bytes", figures.unforeseen_bytes}};
}

json report_of(const CompiledRegion& compiled_region) {
  const auto& report = compiled_region.graphs().report;
  const auto* plan = compiled_region.plan();
  auto metrics = plan == nullptr ? PlanMetrics{} : plan->metrics;
  metrics.plan_seconds = report.plan_seconds;
  auto banned = json::array();
  for (const auto& each : report.banned)
    banned.push_back({{"value", each.value}, {"reason", each.reason}});
  auto entry = to_json(metrics);
  if (compiled_region.measured_peak_bytes() >= 0)
    entry["measured_peak_bytes"] = compiled_region.measured_peak_bytes();
  entry.update({{"forward_operators", compiled_region.forward().instructions().size()},
                {"backward_operators", compiled_region.backward().instructions().size()},
                {"stages", compiled_region.stages().size()},
                {"saved", report.saved},
                {"recomputed", report.recomputed},
                {"banned", banned},
                {"channels_last", compiled_region.graphs().layout.channels_last},
                {"slices", compiled_region.graphs().layout.num_sliced},
                {"on_tape", report.operators.on_tape},
                {"gradients_by", counts(report.operators)},
                {"arena", describe_arena(compiled_region.arena_plans().figures())}});
  return entry;
}

json report_of(const MethodPlan& plan) {
  auto entry = to_json(plan.metrics);
  if (plan.measured_saved_bytes >= 0)
    entry["measured_saved_bytes"] = plan.measured_saved_bytes.load();
  if (plan.measured_peak_bytes >= 0)
    entry["measured_peak_bytes"] = plan.measured_peak_bytes.load();
  return entry;
}

}  // namespace

json report_of(const Specialization& specialization) {
  auto breaks = json::array();
  for (const auto& each : specialization.method.regions.breaks)
    breaks.push_back({{"node", each.node}, {"reason", each.reason}, {"location", each.location}});
  auto regions = json::array();
  for (const auto& region : specialization.regions) {
    auto variants = json::array();
    for (const auto& compiled_region : specialization.compiled_regions_of(*region))
      variants.push_back(report_of(*compiled_region));
    regions.push_back({{"variants", variants}});
  }
  auto plans = json::array();
  for (const auto& plan : specialization.method_plans())
    plans.push_back(report_of(*plan));
  return {{"regions", regions}, {"breaks", breaks}, {"plans", plans}};
}

}  // namespace aten_recompute
