// The strategy `budget`: the fastest plan whose simulated peak fits, or the plan with the smallest
// peak whose time does.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/options.h"
#include "planner/model/peak_step.h"
#include "planner/model/retention_plan.h"

namespace aten_recompute {

// A plan for the same nodes and values, made for inputs of other sizes.
struct KnownPlan {
  const RetentionPlan* retention = nullptr;
  int64_t unplanned_peak_bytes = 0;  // with those sizes
};

// None of the plans that are known keeps the budget.
struct NoKnownPlan : std::runtime_error {
  explicit NoKnownPlan(int64_t unplanned_peak)
      : std::runtime_error("no plan that is known keeps the budget"),
        unplanned_peak_bytes(unplanned_peak) {}
  int64_t unplanned_peak_bytes;
};

struct BudgetLimits {
  size_t num_threads = 1;
  // How much of the problem's memory operators outside of the regions need; for the error message.
  int64_t outside_bytes = 0;
  // Share of the budget that is left free for larger calls, but at most half of what lies between
  // the smallest peak and the budget, as plans near the smallest peak are slow.
  double margin = 0.0;
  // If the sizes are not too far apart, the fastest of these plans that fits is taken. That saves a
  // search, which takes as long as several steps.
  std::vector<KnownPlan> known{};
  // Throws NoKnownPlan instead of a search if none of these fits, however far apart the sizes are.
  bool only_known = false;
  // The largest peak without recomputation of earlier inputs (Options::fraction_of); 0: there were
  // none.
  int64_t largest_unplanned_bytes = 0;
};

// Returns the memory budget in bytes; the largest integer if there is none. A fraction counts from
// `unplanned_peak_bytes`, which fraction_counts_from() returns.
int64_t budget_bytes(const Options& options, int64_t unplanned_peak_bytes);

// Returns the peak that a fraction counts from: that of keeping everything with these inputs, or
// with Options::fraction_of the largest of those with inputs so far.
int64_t fraction_counts_from(const Options& options, int64_t unplanned_peak_bytes,
                             int64_t largest_unplanned_bytes);

// Returns the end of a message about a budget of `limit_bytes` that no plan keeps, where `peak` is
// that of the leanest plan: "; the peak is at aten::relu of layer3.0 (resnet.py:52): operands 12.0
// MiB, results 8.0 MiB, workspace 4.0 MiB, other values 20.0 MiB", followed by what would help, if
// that is known. Returns "" where nothing runs.
std::string explanation(const Problem& problem, const PeakStep& peak, int64_t limit_bytes,
                        const Options& options);

// Returns the plan for the budget in `options`. `unplanned` keeps what the backward reads;
// fractions count from its peak, and the search starts from it. Throws BudgetUnreachableError,
// which is a UserError, if no plan is found that fits; the message names the smallest peak that can
// be reached, rounded up, so that it is a budget that can be kept.
//
// Two kinds of memory budgets that are out of reach are no error: with
// Options::leanest_if_unreachable, and a fraction with FractionOf::kLargest (in Python
// of="largest"), because it counts from more once larger inputs follow. Then a warning is logged,
// and a plan near the smallest peak within Options::leanest_time is returned: of those whose peak
// is at most a tenth larger, the one with the smallest product of time and squared peak.
//
// The plan does not depend on the number of threads.
RetentionPlan plan_budget(const Problem& problem, const RetentionPlan& unplanned,
                          const Options& options, const BudgetLimits& limits = {});

// Returns the plan with the smallest peak that a short search finds.
RetentionPlan plan_leanest(const Problem& problem, const RetentionPlan& unplanned,
                           size_t num_threads = 1);

}  // namespace aten_recompute
