#include "passes/profile/measured_times.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace aten_recompute {
namespace {

// Operators that take less than this share of a profile say too little about its pace.
constexpr double kEnough = 0.1;

// A class that is known: its ratio of seconds now and then, and its seconds then.
using Ratio = std::pair<double, double>;

// Returns the median of the ratios, each of which counts by its seconds: one disturbed operator
// does not change it.
double weighted_median(std::vector<Ratio> ratios) {
  std::sort(ratios.begin(), ratios.end());
  double half = 0.0;
  for (const auto& [ratio, weight] : ratios)
    half += weight / 2;
  for (const auto& [ratio, weight] : ratios) {
    half -= weight;
    if (half <= 0.0)
      return ratio;
  }
  return 1.0;
}

}  // namespace

void MeasuredTimes::reconcile(Profile& profile) {
  std::unordered_map<size_t, double> now;
  for (const auto& [node, cost] : profile.nodes) {
    if (cost.measured_class != 0 && cost.seconds > 0.0)
      now.emplace(cost.measured_class, cost.seconds);
  }
  std::vector<Ratio> ratios;
  double known_seconds = 0.0;
  double all_seconds = 0.0;
  for (const auto& [id, seconds] : now) {
    all_seconds += seconds;
    if (const auto found = seconds_.find(id); found != seconds_.end()) {
      known_seconds += seconds;
      ratios.emplace_back(seconds / found->second, found->second);
    }
  }
  const auto pace =
      known_seconds > kEnough * all_seconds ? weighted_median(std::move(ratios)) : 1.0;
  for (const auto& [id, seconds] : now)
    seconds_.emplace(id, seconds / pace);
  for (auto& [node, cost] : profile.nodes) {
    if (cost.measured_class != 0 && cost.seconds > 0.0)
      cost.seconds = seconds_.at(cost.measured_class);
  }
}

}  // namespace aten_recompute
