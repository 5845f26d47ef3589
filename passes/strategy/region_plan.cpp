#include "passes/strategy/region_plan.h"

#include <iomanip>
#include <sstream>

#include "planner/model/explain_peak.h"

namespace aten_recompute {

PlanMetrics metrics_of(Simulator& simulator, const RetentionPlan& planned_by,
                       const RetentionPlan& unplanned_by) {
  const auto& problem = simulator.problem();
  const auto unplanned = simulator.run(unplanned_by);
  const auto planned = simulator.run(planned_by);
  PlanMetrics metrics;
  metrics.peak_operator = peak_operator(problem, simulator.peak(planned));
  metrics.predicted_peak_bytes = planned.peak_bytes;
  metrics.unplanned_peak_bytes = unplanned.peak_bytes;
  metrics.fraction_counts_from = unplanned.peak_bytes;
  metrics.predicted_saved_bytes = planned.saved_bytes;
  metrics.unplanned_saved_bytes = unplanned.saved_bytes;
  metrics.other_calls = problem.other_calls;
  metrics.predicted_seconds = problem.base_seconds() + planned.recompute_seconds;
  metrics.unplanned_seconds = problem.base_seconds() + unplanned.recompute_seconds;
  metrics.num_nodes = problem.num_nodes;
  return metrics;
}

std::string describe(const PlanMetrics& metrics) {
  std::ostringstream text;
  text << "; predicted peak " << metrics.predicted_peak_bytes << " bytes of "
       << metrics.unplanned_peak_bytes << " without recomputation";
  if (metrics.unplanned_seconds > 0.0)
    text << ", " << std::setprecision(3) << metrics.predicted_seconds / metrics.unplanned_seconds
         << " times its time";
  if (!metrics.peak_operator.name.empty())
    text << "; the peak is at " << describe(metrics.peak_operator);
  return text.str();
}

}  // namespace aten_recompute
