#include "planner/search/pareto_archive.h"

#include <algorithm>
#include <limits>

namespace aten_recompute {
namespace {

constexpr int64_t kRanges = 400;

}  // namespace

ParetoArchive::ParetoArchive(int64_t largest_peak_bytes)
    : range_bytes_(largest_peak_bytes / kRanges + 1),
      plans_(kRanges + 1),
      least_seconds_(kRanges + 1, std::numeric_limits<double>::infinity()) {}

bool ParetoArchive::offer(const RetentionPlan& plan, const Simulation& simulation) {
  const auto peak = simulation.peak_bytes;
  const auto seconds = simulation.recompute_seconds;
  bool taken = false;
  if (!leanest_ || peak < leanest_->simulation.peak_bytes ||
      (peak == leanest_->simulation.peak_bytes &&
       seconds < leanest_->simulation.recompute_seconds)) {
    leanest_ = Plan{plan, simulation};
    taken = true;
  }
  const auto range = static_cast<size_t>(std::min(kRanges, peak / range_bytes_));
  if (seconds >= least_seconds_[range])
    return taken;
  plans_[range] = Plan{plan, simulation};
  for (size_t i = range; i < least_seconds_.size() && least_seconds_[i] > seconds; ++i)
    least_seconds_[i] = seconds;
  return true;
}

void ParetoArchive::merge(const ParetoArchive& other) {
  const auto consider = [&](const std::optional<Plan>& plan) {
    if (plan)
      offer(plan->retention, plan->simulation);
  };
  consider(other.leanest_);
  for (const auto& plan : other.plans_)
    consider(plan);
}

const Plan* ParetoArchive::fastest(int64_t peak_bytes) const {
  const Plan* best = nullptr;
  const auto consider = [&](const std::optional<Plan>& plan) {
    if (plan && plan->simulation.peak_bytes <= peak_bytes &&
        (best == nullptr ||
         plan->simulation.recompute_seconds < best->simulation.recompute_seconds)) {
      best = &*plan;
    }
  };
  consider(leanest_);
  for (const auto& plan : plans_)
    consider(plan);
  return best;
}

const Plan* ParetoArchive::leanest(double seconds) const {
  if (leanest_ && leanest_->simulation.recompute_seconds <= seconds)
    return &*leanest_;
  for (const auto& plan : plans_) {
    if (plan && plan->simulation.recompute_seconds <= seconds)
      return &*plan;
  }
  return nullptr;
}

std::vector<Plan> ParetoArchive::frontier() const {
  std::vector<Plan> plans;
  const auto consider = [&](const std::optional<Plan>& plan) {
    if (!plan || (!plans.empty() && plans.back().simulation.recompute_seconds <=
                                        plan->simulation.recompute_seconds)) {
      return;
    }
    plans.push_back(*plan);
  };
  consider(leanest_);
  for (const auto& plan : plans_)
    consider(plan);
  std::reverse(plans.begin(), plans.end());
  return plans;
}

}  // namespace aten_recompute
