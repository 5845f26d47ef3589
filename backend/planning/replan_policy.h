// When a plan is replaced, and what is different for its successor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "common/options.h"

namespace aten_recompute {

// A plan is replaced where a step has shown that it assumed something else. Training is under way
// then, which is too late for an error: where the budget cannot be kept, the successor is the plan
// with the smallest peak. Not thread-safe.
class ReplanPolicy {
 public:
  // Notes that a plan was made. `unplanned_peak_bytes` is its peak without recomputation.
  void note_plan(int64_t unplanned_peak_bytes) {
    largest_unplanned_bytes_ = std::max(largest_unplanned_bytes_, unplanned_peak_bytes);
  }
  // Returns the largest peak without recomputation of all plans so far; 0: there were none.
  int64_t largest_unplanned_bytes() const { return largest_unplanned_bytes_; }

  // Notes that the inputs were larger than those of all plans, or that data made larger tensors
  // than planned for.
  void note_larger_inputs() { ++num_larger_inputs_; }
  void note_larger_data() { has_larger_data_ = true; }
  // Returns whether the next plan should leave room for more. Inputs that grew twice will grow
  // again. What data decide differs in most calls.
  bool leaves_room() const { return has_larger_data_ || num_larger_inputs_ >= 2; }

  // Notes that a call which was to start again under another plan, because its data had made larger
  // tensors, could not be planned: it was on another path of the method than the plan.
  void note_other_path() { ++num_other_paths_; }
  // Returns whether calls may start again. Where paths are tried in turn, larger tensors say little
  // about the path that a plan is for.
  bool may_start_again() const { return num_other_paths_ < kMostOtherPaths; }

  // Notes that a plan is replaced.
  void note_replacement() { is_late_ = true; }
  // Returns the options for the next plan.
  Options for_next_plan(Options options) const {
    options.leanest_if_unreachable = options.leanest_if_unreachable || is_late_;
    return options;
  }

  // Returns whether a plan may be replaced that predicted too little, and counts it. Under a new
  // plan, operators between regions may keep other values, so predictions need not converge.
  bool may_replace() { return num_replaced_++ < kMostReplaced; }
  // Returns whether a plan may be replaced that predicted too much, and counts it. What operators
  // between regions need under one plan need not hold under the next, so the limit is low.
  bool may_replace_with_less() { return num_replaced_with_less_++ < kMostReplacedWithLess; }

 private:
  static constexpr size_t kMostReplaced = 8;
  static constexpr size_t kMostReplacedWithLess = 3;
  static constexpr size_t kMostOtherPaths = 2;

  int64_t largest_unplanned_bytes_ = 0;
  size_t num_larger_inputs_ = 0;
  bool has_larger_data_ = false;
  size_t num_other_paths_ = 0;
  bool is_late_ = false;
  size_t num_replaced_ = 0;
  size_t num_replaced_with_less_ = 0;
};

}  // namespace aten_recompute
