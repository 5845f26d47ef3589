// Search over decisions: plans that are fast for the peak they reach. Knows nothing of networks;
// the simulator is its oracle, so what it finds is what runs.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "planner/model/retention_plan.h"
#include "planner/search/pareto_archive.h"

namespace aten_recompute {

// How many nodes are simulated in each of the search's phases. Counts and not a time: the same
// problem gives the same plans on any machine. The more time a step of training takes, the more is
// there to gain, and the less does a user notice of the search.
struct SearchEffort {
  double steps_per_second = 1e7;  // of the problem's base_seconds()
  int64_t least_steps = 2'000'000;
  int64_t most_steps = 10'000'000;
  int64_t simulations = 120'000;  // at most, of plans that compute nothing again
  size_t num_threads = 1;         // at most; their number changes nothing about the plans
};

// Plans for one problem. Deterministic; not for several threads at once.
class PlanSearch {
 public:
  // `unplanned` keeps what the backward reads.
  PlanSearch(const Problem& problem, const RetentionPlan& unplanned,
             const SearchEffort& effort = {});
  ~PlanSearch();
  PlanSearch(const PlanSearch&) = delete;
  PlanSearch& operator=(const PlanSearch&) = delete;

  // Peak of the leanest plan found, near to computing everything again whenever it is read.
  int64_t smallest_peak_bytes() const;

  // The fastest plan found with a peak of at most `peak_bytes`; nothing below
  // smallest_peak_bytes(). What is found for one budget does not depend on what was asked before.
  std::optional<Plan> fastest(int64_t peak_bytes);

  // The plan of the smallest peak found that computes again for at most `seconds`.
  Plan leanest(double seconds);

 private:
  friend std::vector<Plan> search_frontier(const Problem& problem, const RetentionPlan& unplanned,
                                           const SearchEffort& effort);
  struct State;
  std::unique_ptr<State> state_;
};

// Plans none of which is beaten in both peak and time, by falling peak and rising time: from
// `unplanned` to the smallest peak.
std::vector<Plan> search_frontier(const Problem& problem, const RetentionPlan& unplanned,
                                  const SearchEffort& effort = {});

}  // namespace aten_recompute
