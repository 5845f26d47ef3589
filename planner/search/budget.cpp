#include "planner/search/budget.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>

#include "common/log.h"
#include "common/user_error.h"
#include "planner/model/simulator.h"
#include "planner/search/search.h"

namespace aten_recompute {
namespace {

std::string size_text(int64_t bytes, int digits = 1) {
  constexpr int64_t kKiB = 1 << 10;
  constexpr int64_t kMiB = 1 << 20;
  if (bytes < kKiB)
    return std::to_string(bytes) + " bytes";
  const bool is_small = bytes < kMiB;
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f %s", digits,
                static_cast<double>(bytes) / static_cast<double>(is_small ? kKiB : kMiB),
                is_small ? "KiB" : "MiB");
  return text;
}

// Returns how many digits it takes to show that the two differ; six are enough for single bytes.
int digits_for(int64_t bytes, int64_t other) {
  int digits = 1;
  while (digits < 6 && size_text(bytes, digits) == size_text(other, digits))
    ++digits;
  return digits;
}

std::string fraction(int64_t part, int64_t whole) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", static_cast<double>(part) / static_cast<double>(whole));
  return text;
}

std::string unreachable(int64_t limit, int64_t smallest, int64_t keep_all, int64_t outside) {
  const auto digits = digits_for(limit, smallest);
  return "memory_budget: the peak cannot be kept under " + size_text(limit, digits) +
         "; the smallest that can be reached is " + size_text(smallest, digits) + " (" +
         fraction(smallest, keep_all) + " of " + size_text(keep_all) +
         ", the peak without recomputation)" +
         (outside > 0 ? ", as operators between the regions need " + size_text(outside) : "");
}

// Returns the fastest of the known plans that fits; null if there is none.
const RetentionPlan* fastest_known(Simulator& simulator, const std::vector<KnownPlan>& known,
                                   int64_t unplanned_peak_bytes, int64_t limit_bytes) {
  constexpr int64_t kFarApart = 4;
  const RetentionPlan* fastest = nullptr;
  double seconds = std::numeric_limits<double>::infinity();
  for (const auto& plan : known) {
    if (plan.unplanned_peak_bytes > kFarApart * unplanned_peak_bytes ||
        unplanned_peak_bytes > kFarApart * plan.unplanned_peak_bytes)
      continue;
    const auto simulation = simulator.run(*plan.retention);
    if (simulation.peak_bytes > limit_bytes || simulation.recompute_seconds >= seconds)
      continue;
    seconds = simulation.recompute_seconds;
    fastest = plan.retention;
  }
  return fastest;
}

// Returns the plan near the smallest peak for which the product of time and squared peak is
// smallest: a tenth less memory is worth a fifth more time, and not a multiple of it. The last
// percents of memory may cost a multiple of the time: on ShuffleNet the smallest peak takes 19
// times as long as without recomputation, and a peak that is a tenth larger 1.04 times.
RetentionPlan near_smallest_peak(PlanSearch& search, double base_seconds) {
  const auto smallest = search.smallest_peak_bytes();
  std::optional<RetentionPlan> best;
  double best_product = std::numeric_limits<double>::infinity();
  for (const double share : {1.0, 1.01, 1.02, 1.03, 1.05, 1.07, 1.1}) {
    const auto limit = static_cast<int64_t>(share * static_cast<double>(smallest));
    const auto plan = search.fastest(std::max(limit, smallest));
    const auto peak = static_cast<double>(plan->simulation.peak_bytes);
    const double product = peak * peak * (base_seconds + plan->simulation.recompute_seconds);
    if (product < best_product) {
      best_product = product;
      best = plan->retention;
    }
  }
  return *best;
}

}  // namespace

int64_t budget_bytes(const Options& options, int64_t unplanned_peak_bytes) {
  if (options.memory_fraction)
    return static_cast<int64_t>(*options.memory_fraction *
                                static_cast<double>(unplanned_peak_bytes));
  return options.memory_bytes.value_or(std::numeric_limits<int64_t>::max());
}

RetentionPlan plan_budget(const Problem& problem, const RetentionPlan& unplanned,
                          const Options& options, const BudgetLimits& limits) {
  Simulator simulator(problem);
  const auto keep_all_bytes = simulator.run(unplanned).peak_bytes;
  const auto total = budget_bytes(options, keep_all_bytes);
  if (!options.time_budget && keep_all_bytes <= total)
    return unplanned;
  if (!options.time_budget) {
    if (const auto* known = fastest_known(simulator, limits.known, keep_all_bytes, total))
      return *known;
  }

  PlanSearch search(problem, unplanned, SearchEffort{.num_threads = limits.num_threads});
  const auto free = static_cast<int64_t>(limits.margin * static_cast<double>(total));
  auto plan = search.fastest(total - free);
  if (!plan)
    plan = search.fastest(total);
  if (!plan) {
    const auto error =
        unreachable(total, search.smallest_peak_bytes(), keep_all_bytes, limits.outside_bytes);
    if (!options.leanest_if_unreachable)
      throw UserError(error);
    log_warning(error + "; a plan near that runs instead");
    return near_smallest_peak(search, problem.base_seconds());
  }
  if (!options.time_budget)
    return plan->retention;
  const double base = problem.base_seconds();
  const auto leanest = search.leanest(base * (*options.time_budget - 1.0));
  if (leanest.simulation.peak_bytes > total) {
    char times[32];
    std::snprintf(times, sizeof(times), "%.3f", 1.0 + plan->simulation.recompute_seconds / base);
    throw UserError("time_budget and memory_budget: no plan keeps both; under " + size_text(total) +
                    " the fastest takes " + times + " times as long as without recomputation");
  }
  return leanest.retention;
}

RetentionPlan plan_leanest(const Problem& problem, const RetentionPlan& unplanned,
                           size_t num_threads) {
  PlanSearch search(problem, unplanned,
                    SearchEffort{.simulations = 2500, .num_threads = num_threads});
  return search.fastest(search.smallest_peak_bytes())->retention;
}

}  // namespace aten_recompute
