#include "passes/plan/budget.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <string>

#include "passes/plan/search.h"
#include "passes/plan/simulator.h"
#include "passes/user_error.h"

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

// Enough digits to tell the two apart; six tell bytes apart.
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

}  // namespace

Decisions plan_budget(const Problem& problem, const Decisions& unplanned, const Options& options,
                      size_t num_threads) {
  Simulator simulator(problem);
  const auto keep_all = simulator.run(unplanned);
  int64_t limit = std::numeric_limits<int64_t>::max();
  if (options.memory_fraction) {
    limit =
        static_cast<int64_t>(*options.memory_fraction * static_cast<double>(keep_all.peak_bytes));
  } else if (options.memory_bytes) {
    limit = *options.memory_bytes;
  }
  if (!options.time_budget && keep_all.peak_bytes <= limit)
    return unplanned;

  PlanSearch search(problem, unplanned, SearchEffort{.num_threads = num_threads});
  const auto plan = search.fastest(limit);
  if (!plan) {
    const auto smallest = search.smallest_peak_bytes();
    const auto digits = digits_for(limit, smallest);
    throw UserError("memory_budget: the peak cannot be kept under " + size_text(limit, digits) +
                    "; the smallest that can be reached is " + size_text(smallest, digits) + " (" +
                    fraction(smallest, keep_all.peak_bytes) + " of " +
                    size_text(keep_all.peak_bytes) + ", the peak without recomputation)");
  }
  if (!options.time_budget)
    return plan->decisions;
  const double base = problem.base_seconds();
  const auto lean = search.leanest(base * (*options.time_budget - 1.0));
  if (lean.simulation.peak_bytes > limit) {
    char times[32];
    std::snprintf(times, sizeof(times), "%.3f", 1.0 + plan->simulation.recompute_seconds / base);
    throw UserError("time_budget and memory_budget: no plan keeps both; under " + size_text(limit) +
                    " the fastest takes " + times + " times as long as without recomputation");
  }
  return lean.decisions;
}

Decisions plan_leanest(const Problem& problem, const Decisions& unplanned, size_t num_threads) {
  PlanSearch search(problem, unplanned,
                    SearchEffort{.simulations = 2500, .num_threads = num_threads});
  return search.fastest(search.smallest_peak_bytes())->decisions;
}

}  // namespace aten_recompute
