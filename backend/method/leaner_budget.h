// The budget of a method whose calls have run out of memory.
#pragma once

#include <cstdint>
#include <optional>

#include "common/options.h"

namespace aten_recompute {

// Becomes smaller each time that memory runs out under a plan (Options::retries_leaner). Not
// thread-safe.
class LeanerBudget {
 public:
  // Notes that memory ran out under a plan with this predicted peak. Returns false if there is no
  // leaner plan: the last one was made under such a budget, and did not reach it.
  bool lower(int64_t predicted_peak_bytes) {
    if (bytes_ && predicted_peak_bytes > *bytes_)
      return false;
    bytes_ = static_cast<int64_t>(kShare * static_cast<double>(predicted_peak_bytes));
    return true;
  }

  // Returns the budget; nullopt where memory has never run out.
  std::optional<int64_t> bytes() const { return bytes_; }

  // Returns the options for plans that are made from now on.
  Options applied_to(Options options) const {
    if (!bytes_)
      return options;
    options.memory_fraction.reset();
    options.memory_bytes = bytes_;
    options.time_budget.reset();
    // Training is under way, and a leaner plan may have enough memory.
    options.leanest_if_unreachable = true;
    return options;
  }

 private:
  // Of the peak under which memory ran out. Smaller steps would end more of them.
  static constexpr double kShare = 0.7;

  std::optional<int64_t> bytes_;
};

}  // namespace aten_recompute
