#include "planner/search/budget.h"

#include <aten_recompute/errors.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>

#include "common/environment.h"
#include "common/log.h"
#include "common/size_text.h"
#include "planner/model/explain_peak.h"
#include "planner/model/simulator.h"
#include "planner/search/search.h"

namespace aten_recompute {
namespace {

// Returns how much is searched: by default, or as RECOMPUTE_SEARCH_STEPS says.
SearchEffort effort_with(size_t num_threads) {
  SearchEffort effort{.num_threads = num_threads};
  effort.most_steps = environment_number("RECOMPUTE_SEARCH_STEPS").value_or(effort.most_steps);
  return effort;
}

// Returns how many digits it takes to show that a limit is below a size; six are enough for single
// bytes.
int digits_for(int64_t limit, int64_t size) {
  int digits = 1;
  while (digits < 6 && nearest_size(limit, digits) == size_at_least(size, digits))
    ++digits;
  return digits;
}

// Returns the quotient as a text of three digits that stands for it or a little more.
std::string fraction(int64_t part, int64_t whole) {
  const double exact = static_cast<double>(part) / static_cast<double>(whole);
  double unit = 1e-3;
  while (unit > 1e-9 && exact < 100.0 * unit)
    unit /= 10.0;
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", std::min(1.0, std::ceil(exact / unit) * unit));
  return text;
}

std::string times(double factor) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", factor);
  return text;
}

// `keep_all` is the peak without recomputation, `reference` what a fraction counts from, 0 if the
// budget is no fraction.
std::string unreachable(int64_t limit, int64_t smallest, int64_t keep_all, int64_t reference,
                        int64_t outside) {
  const auto digits = digits_for(limit, smallest);
  const auto whole = std::max(keep_all, reference);
  return "memory_budget: the peak cannot be kept under " + nearest_size(limit, digits) +
         "; the smallest that can be reached is " + size_at_least(smallest, digits) + " (" +
         fraction(smallest, whole) + " of " + nearest_size(whole) +
         ", the peak without recomputation" +
         (reference > 0 ? " with the inputs of " +
                              std::string(reference > keep_all ? "an earlier" : "this") + " call)"
                        : ")") +
         (outside > 0 ? ", as operators between the regions need " + nearest_size(outside) : "");
}

// Returns what would make the smallest peak smaller; "" where nothing stands out.
std::string advice(const PeakStep& peak, int64_t limit_bytes, const Options& options) {
  if (peak.alone_bytes > limit_bytes) {
    return "; this operator alone needs " + nearest_size(peak.alone_bytes) +
           ", so no plan can keep the budget: a smaller batch or smaller inputs would help" +
           (options.exact ? ", or \"exact\": false, which may run it slice by slice" : "");
  }
  const auto half =
      (peak.operand_bytes + peak.result_bytes + peak.workspace_bytes + peak.other_bytes) / 2;
  if (peak.gradient_bytes > half && !options.accumulate) {
    return "; " + nearest_size(peak.gradient_bytes) +
           " of the other values are gradients; those of parameters do not count with "
           "\"accumulate\": true, for steps that add to gradients that exist";
  }
  if (peak.output_bytes > half && !options.release_outputs) {
    return "; " + nearest_size(peak.output_bytes) +
           " of the other values are outputs; they do not count with \"release_outputs\": true, "
           "for callers that free them before the backward";
  }
  return "";
}

// Returns the end of an error: which other options or values would be accepted.
std::string other_options(const Options& options) {
  // No training step fits into 4 KiB. Such a number was meant as a share or in MiB.
  constexpr int64_t kTinyBytes = 4096;
  std::string text = ". \"unreachable\": \"leanest\" runs a plan near the smallest peak instead";
  if (options.memory_bytes.value_or(kTinyBytes) < kTinyBytes)
    text +=
        "; a number above 1 counts bytes: a share is at most 1, a size is a string such as \"50 "
        "MiB\"";
  if (options.memory_fraction)
    text +=
        "; if other calls have larger inputs, begin with these, give bytes, or set \"of\": "
        "\"largest\"";
  return text;
}

// What is known of the leanest plan where none keeps the budget.
struct SmallestPeak {
  int64_t bytes = 0;
  PeakStep step;
};

SmallestPeak smallest_peak(Simulator& simulator, const RetentionPlan& leanest) {
  const auto simulation = simulator.run(leanest);
  return {simulation.peak_bytes, simulator.peak(simulation)};
}

[[noreturn]] void throw_unreachable(const std::string& message, const Problem& problem,
                                    const SmallestPeak& smallest, int64_t limit, int64_t keep_all) {
  BudgetUnreachableError error(message);
  error.smallest_peak_bytes = smallest.bytes;
  error.limit_bytes = limit;
  error.unplanned_peak_bytes = keep_all;
  error.peak_operator = peak_operator(problem, smallest.step);
  error.raise();
}

// Returns the fastest of the known plans that fits; null if there is none.
const RetentionPlan* fastest_known(Simulator& simulator, const BudgetLimits& limits,
                                   int64_t unplanned_peak_bytes, int64_t limit_bytes) {
  constexpr int64_t kFarApart = 4;
  const RetentionPlan* fastest = nullptr;
  double seconds = std::numeric_limits<double>::infinity();
  for (const auto& plan : limits.known) {
    if (!limits.only_known && (plan.unplanned_peak_bytes > kFarApart * unplanned_peak_bytes ||
                               unplanned_peak_bytes > kFarApart * plan.unplanned_peak_bytes))
      continue;
    const auto simulation = simulator.run(*plan.retention);
    if (simulation.peak_bytes > limit_bytes || simulation.recompute_seconds >= seconds)
      continue;
    seconds = simulation.recompute_seconds;
    fastest = plan.retention;
  }
  return fastest;
}

// Returns the same problem with seconds from operations and bytes.
Problem with_computed_seconds(const Problem& problem) {
  constexpr double kFlopsPerSecond = 5e10, kBytesPerSecond = 1e10;
  auto computed = problem;
  for (size_t i = 0; i < problem.num_all_nodes(); ++i) {
    double bytes = 0.0;
    for (const auto* values : {&problem.inputs, &problem.outputs}) {
      for (auto value : (*values)[i])
        bytes += static_cast<double>(problem.value_bytes(value));
    }
    computed.seconds[i] = problem.flops[i] / kFlopsPerSecond + bytes / kBytesPerSecond;
  }
  return computed;
}

// Returns the plan near the smallest peak within `seconds` of recomputation for which the product
// of time and squared peak is smallest: a tenth less memory is worth a fifth more time, and not a
// multiple of it. The last percents of memory may cost a multiple of the time: on ShuffleNet the
// smallest peak takes 19 times as long as without recomputation, and a peak that is a tenth larger
// 1.04 times.
Plan near_smallest_peak(PlanSearch& search, double base_seconds, double seconds) {
  const auto smallest = search.leanest(seconds);
  const auto smallest_bytes = smallest.simulation.peak_bytes;
  auto best = smallest;
  double best_product = std::numeric_limits<double>::infinity();
  for (const double share : {1.0, 1.01, 1.02, 1.03, 1.05, 1.07, 1.1}) {
    const auto limit = static_cast<int64_t>(share * static_cast<double>(smallest_bytes));
    auto plan = search.fastest(std::max(limit, smallest_bytes));
    const auto peak = static_cast<double>(plan->simulation.peak_bytes);
    const double product = peak * peak * (base_seconds + plan->simulation.recompute_seconds);
    if (product < best_product) {
      best_product = product;
      best = std::move(*plan);
    }
  }
  return best;
}

// Says what the plan takes that runs where a budget is out of reach, and what smaller peaks would.
std::string description(PlanSearch& search, const Plan& plan, double base_seconds) {
  const auto of = [&](const Plan& each) {
    return size_at_least(each.simulation.peak_bytes) + " takes " +
           times(1.0 + each.simulation.recompute_seconds / base_seconds) + " times";
  };
  std::string text = "; a plan near that runs instead: its peak of " + of(plan) +
                     " the time of a step without recomputation";
  const auto next = search.fastest(plan.simulation.peak_bytes - 1);
  if (!next)
    return text;
  text += ", the next smaller one of " + of(*next);
  const auto smallest = search.fastest(search.smallest_peak_bytes());
  if (smallest->simulation.peak_bytes < next->simulation.peak_bytes)
    text += ", the smallest of " + of(*smallest);
  return text;
}

}  // namespace

int64_t budget_bytes(const Options& options, int64_t unplanned_peak_bytes) {
  if (options.memory_fraction)
    return static_cast<int64_t>(*options.memory_fraction *
                                static_cast<double>(unplanned_peak_bytes));
  return options.memory_bytes.value_or(std::numeric_limits<int64_t>::max());
}

int64_t fraction_counts_from(const Options& options, int64_t unplanned_peak_bytes,
                             int64_t largest_unplanned_bytes) {
  return options.fraction_of == FractionOf::kLargest
             ? std::max(unplanned_peak_bytes, largest_unplanned_bytes)
             : unplanned_peak_bytes;
}

std::string explanation(const Problem& problem, const PeakStep& peak, int64_t limit_bytes,
                        const Options& options) {
  const auto where = peak_operator(problem, peak);
  if (where.name.empty())
    return "";
  const auto others = ", other values " + nearest_size(peak.other_bytes);
  const auto place = "; the peak is at " + describe(where);
  if (peak.at_loss) {
    return place + ": outputs " + nearest_size(peak.operand_bytes) + ", what the loss needs " +
           nearest_size(peak.workspace_bytes) + others;
  }
  return place + ": operands " + nearest_size(peak.operand_bytes) + ", results " +
         nearest_size(peak.result_bytes) + ", workspace " + nearest_size(peak.workspace_bytes) +
         others + advice(peak, limit_bytes, options);
}

RetentionPlan plan_budget(const Problem& problem, const RetentionPlan& unplanned,
                          const Options& options, const BudgetLimits& limits) {
  Simulator simulator(problem);
  const auto keep_all_bytes = simulator.run(unplanned).peak_bytes;
  const auto reference =
      fraction_counts_from(options, keep_all_bytes, limits.largest_unplanned_bytes);
  const auto total = budget_bytes(options, reference);
  if (!options.time_budget && keep_all_bytes <= total)
    return unplanned;
  if (!options.time_budget) {
    if (const auto* known = fastest_known(simulator, limits, keep_all_bytes, total)) {
      log_info(LogTopic::kPlan,
               "memory_budget: a plan for other inputs keeps it and is taken again");
      return *known;
    }
  }

  if (limits.only_known)
    throw NoKnownPlan(keep_all_bytes);
  PlanSearch search(problem, unplanned, effort_with(limits.num_threads));
  const auto free = std::min(static_cast<int64_t>(limits.margin * static_cast<double>(total)),
                             (total - search.smallest_peak_bytes()) / 2);
  auto plan = search.fastest(total - std::max<int64_t>(free, 0));
  const double base = problem.base_seconds();
  SmallestPeak smallest;
  if (!plan && options.cost_model != CostModel::kMeasured)
    smallest = smallest_peak(simulator, search.fastest(search.smallest_peak_bytes())->retention);
  if (!plan && options.cost_model == CostModel::kMeasured) {
    // Measured seconds lead to other plans in each process. The peak that an error names has to be
    // one that the next process reaches, too.
    const auto computed = with_computed_seconds(problem);
    PlanSearch again(computed, unplanned, effort_with(limits.num_threads));
    smallest = smallest_peak(simulator, again.fastest(again.smallest_peak_bytes())->retention);
    if (const auto found = again.fastest(total))
      plan = Plan{found->retention, simulator.run(found->retention)};
  }
  if (!plan) {
    const bool is_fraction = options.memory_fraction.has_value();
    const auto error = unreachable(total, smallest.bytes, keep_all_bytes,
                                   is_fraction ? reference : 0, limits.outside_bytes) +
                       explanation(problem, smallest.step, total, options);
    // Larger inputs may follow, for which the fraction is a budget that can be kept.
    const bool may_grow = is_fraction && options.fraction_of == FractionOf::kLargest;
    if (!options.leanest_if_unreachable && !may_grow)
      throw_unreachable(error + other_options(options), problem, smallest, total, keep_all_bytes);
    const auto factor =
        std::min(options.leanest_time, options.time_budget.value_or(options.leanest_time));
    const auto leanest = near_smallest_peak(search, base, base * (factor - 1.0));
    log_warning(LogTopic::kPlan, error + description(search, leanest, base));
    return leanest.retention;
  }
  if (!options.time_budget)
    return plan->retention;
  const auto leanest = search.leanest(base * (*options.time_budget - 1.0));
  if (leanest.simulation.peak_bytes > total) {
    char factor[32];
    std::snprintf(factor, sizeof(factor), "%.3f", 1.0 + plan->simulation.recompute_seconds / base);
    const auto in_time = smallest_peak(simulator, leanest.retention);
    throw_unreachable("time_budget and memory_budget: no plan keeps both; under " +
                          nearest_size(total) + " the fastest takes " + factor +
                          " times as long as without recomputation" +
                          explanation(problem, in_time.step, total, options),
                      problem, in_time, total, keep_all_bytes);
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
