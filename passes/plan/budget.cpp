#include "passes/plan/budget.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <stdexcept>
#include <string>

#include "passes/plan/search.h"
#include "passes/plan/simulator.h"

namespace aten_recompute {
namespace {

std::string mebibytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
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
    throw std::runtime_error("memory_budget: the peak cannot be kept under " + mebibytes(limit) +
                             "; the smallest that can be reached is " + mebibytes(smallest) + " (" +
                             fraction(smallest, keep_all.peak_bytes) + " of " +
                             mebibytes(keep_all.peak_bytes) + ", the peak without recomputation)");
  }
  if (!options.time_budget)
    return plan->decisions;
  const double base = problem.base_seconds();
  const auto lean = search.leanest(base * (*options.time_budget - 1.0));
  if (lean.simulation.peak_bytes > limit) {
    char times[32];
    std::snprintf(times, sizeof(times), "%.3f", 1.0 + plan->simulation.recompute_seconds / base);
    throw std::runtime_error("time_budget and memory_budget: no plan keeps both; under " +
                             mebibytes(limit) + " the fastest takes " + times +
                             " times as long as without recomputation");
  }
  return lean.decisions;
}

Decisions plan_leanest(const Problem& problem, const Decisions& unplanned, size_t num_threads) {
  PlanSearch search(problem, unplanned,
                    SearchEffort{.simulations = 2500, .num_threads = num_threads});
  return search.fastest(search.smallest_peak_bytes())->decisions;
}

}  // namespace aten_recompute
