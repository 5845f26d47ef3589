// The fastest plan that a search found for each range of peaks.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/model/simulator.h"

namespace aten_recompute {

// A plan says what is kept and dropped; its simulation says what that costs.
struct Plan {
  RetentionPlan retention;
  Simulation simulation;
};

// All answers come from one set of plans, so a larger budget never gets a slower plan.
class ParetoArchive {
 public:
  // Distinguishes peaks up to `largest_peak_bytes`, in steps of a quarter of a percent of it.
  explicit ParetoArchive(int64_t largest_peak_bytes);

  // Copies the plan into the archive if it is faster than all plans known for its peak and below,
  // or has the smallest peak. Returns whether it did.
  bool offer(const RetentionPlan& plan, const Simulation& simulation);

  // Offers all plans of another archive, which must have the same `largest_peak_bytes`.
  void merge(const ParetoArchive& other);

  // Returns the fastest plan with a peak of at most `peak_bytes`; null if there is none.
  const Plan* fastest(int64_t peak_bytes) const;
  // Returns the plan with the smallest peak that recomputes for at most `seconds`; null if there is
  // none.
  const Plan* leanest(double seconds) const;
  // Returns the plan with the smallest peak; null if the archive is empty.
  const Plan* leanest() const { return leanest_ ? &*leanest_ : nullptr; }
  // Returns the plans that no other plan beats in both peak and time, by falling peak.
  std::vector<Plan> frontier() const;

 private:
  int64_t range_bytes_;
  std::vector<std::optional<Plan>> plans_;  // per range, by rising peak
  std::vector<double> least_seconds_;       // per range: of the plans in it and below
  std::optional<Plan> leanest_;
};

}  // namespace aten_recompute
