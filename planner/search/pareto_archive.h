// The plans that a search has come by: for each range of peaks the fastest.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/model/simulator.h"

namespace aten_recompute {

struct Plan {
  RetentionPlan decisions;
  Simulation simulation;
};

// All answers come from one set of plans, so a greater budget never gets a slower one.
class ParetoArchive {
 public:
  // Tells peaks apart up to `largest_peak_bytes`, in steps of a quarter of a percent of it.
  explicit ParetoArchive(int64_t largest_peak_bytes);

  // Takes the plan if it is worth it, and copies it only then. True if it did.
  bool offer(const RetentionPlan& decisions, const Simulation& simulation);

  // Takes of another, of the same size, what is worth it.
  void merge(const ParetoArchive& other);

  // The fastest with a peak of at most `peak_bytes`; null if there is none.
  const Plan* fastest(int64_t peak_bytes) const;
  // The one of the smallest peak that computes again for at most `seconds`; null if there is none.
  const Plan* leanest(double seconds) const;
  const Plan* leanest() const { return leanest_ ? &*leanest_ : nullptr; }
  // By falling peak and rising time, none of them beaten in both.
  std::vector<Plan> frontier() const;

 private:
  int64_t range_bytes_;
  std::vector<std::optional<Plan>> plans_;  // by range, of rising peak
  std::vector<double> least_seconds_;       // in this range and those below
  std::optional<Plan> leanest_;
};

}  // namespace aten_recompute
