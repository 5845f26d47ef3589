// The search for plans that are fast for their peak. docs/search.md describes its phases.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "planner/model/retention_plan.h"
#include "planner/search/pareto_archive.h"

namespace aten_recompute {

// How many steps are simulated in each phase of the search. These are counts and not times, so that
// one problem has the same plans on any machine. The longer a training step takes, the more there
// is to gain, and the less a user notices the search.
struct SearchEffort {
  double steps_per_second = 1e7;  // per second of Problem::base_seconds()
  int64_t least_steps = 2'000'000;
  int64_t most_steps = 10'000'000;
  int64_t simulations = 120'000;  // at most so many times the steps without recomputation
  size_t num_threads = 1;         // at most; plans do not depend on it
};

// Plans for one problem. Deterministic; not for several threads at once.
class PlanSearch {
 public:
  // Runs the search. `problem` must outlive this object. `unplanned` keeps what the backward reads.
  PlanSearch(const Problem& problem, const RetentionPlan& unplanned,
             const SearchEffort& effort = {});
  ~PlanSearch();
  PlanSearch(const PlanSearch&) = delete;
  PlanSearch& operator=(const PlanSearch&) = delete;

  // Returns the smallest peak of all plans found.
  int64_t smallest_peak_bytes() const;

  // Returns the fastest plan found with a peak of at most `peak_bytes`; nothing below
  // smallest_peak_bytes(). Answers do not depend on earlier questions.
  std::optional<Plan> fastest(int64_t peak_bytes);

  // Returns the plan with the smallest peak found that recomputes for at most `seconds`.
  Plan leanest(double seconds);

 private:
  friend std::vector<Plan> search_frontier(const Problem& problem, const RetentionPlan& unplanned,
                                           const SearchEffort& effort);
  struct State;
  std::unique_ptr<State> state_;
};

// Returns the plans that no other plan beats in both peak and time, by falling peak: from
// `unplanned` to the smallest peak.
std::vector<Plan> search_frontier(const Problem& problem, const RetentionPlan& unplanned,
                                  const SearchEffort& effort = {});

}  // namespace aten_recompute
