// Times of operators that several profiles of a region agree on.
#pragma once

#include <cstddef>
#include <unordered_map>

#include "passes/profile/region_profile.h"

namespace aten_recompute {

// A region is profiled once for each layout that is tried, and what other programs do on the
// machine may slow one of these profiles down by a half. Layouts are compared by their times, and
// most operators are the same in all of them. So each such operator has the time of the first
// profile everywhere, and operators of later profiles are scaled by what the same operators took
// then and now.
class MeasuredTimes {
 public:
  // Changes the seconds of the profile's measured nodes (NodeCost::measured_class), and learns
  // those of classes that are new.
  void reconcile(Profile& profile);

 private:
  std::unordered_map<size_t, double> seconds_;  // by class
};

}  // namespace aten_recompute
