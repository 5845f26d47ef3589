// A retention plan says which values are dropped, and when. The Scheduler derives from it what
// runs, and the Simulator what that costs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/model/problem.h"

namespace aten_recompute {

// Values can be dropped at the end of slots (Problem): slot 0 is that of the forward, apart from
// nodes of it that are served.
//
// Most values are dropped in every slot or in none. So a plan stores a rule for each value and the
// slots that are exceptions. This makes copies cheap, and searches make many.
class RetentionPlan {
 public:
  // Keeps everything.
  explicit RetentionPlan(const Problem& problem);

  // Returns whether the value is dropped at the end of the slot, if the slot used it. If it is read
  // later, it is recomputed then.
  bool dropped(int32_t value, size_t slot) const {
    const auto rule = rules_[value];
    if ((rule & exception_bit(slot)) != 0 && is_exception(value, slot))
      return !follows(rule, slot);
    return follows(rule, slot);
  }
  bool dropped_in_first_slot(int32_t value) const {
    return (rules_[value] & kDropInFirstSlot) != 0;
  }
  void drop(int32_t value, size_t slot) { set(value, slot, true); }
  void keep(int32_t value, size_t slot) { set(value, slot, false); }
  void set(int32_t value, size_t slot, bool dropped);
  // Sets all slots of a value at once.
  void set_always(int32_t value, bool dropped);
  void drop_always(int32_t value) { set_always(value, true); }
  // Sets each slot of a value; `dropped` has 1 for dropped. Faster than many calls of set().
  void set_slots(int32_t value, std::span<const uint8_t> dropped);

  // Returns the node that runs in place of `node` in the backward: itself or an alternative.
  int32_t chosen(int32_t node) const { return chosen_[node]; }
  void choose(int32_t node, int32_t alternative) { chosen_[node] = alternative; }

  size_t num_slots() const { return num_slots_; }
  // Returns whether both plans decide the same in every slot, however they store it.
  bool operator==(const RetentionPlan& other) const;

 private:
  // The bits above the first two form a filter: slot s may be an exception only if bit s modulo 30
  // of them is set. Without it scheduling would spend much of its time on looking up exceptions.
  enum Rule : uint32_t { kDropInFirstSlot = 1, kDropInOthers = 2, kExceptions = ~uint32_t{3} };

  static bool follows(uint32_t rule, size_t slot) {
    return (rule & (slot == 0 ? kDropInFirstSlot : kDropInOthers)) != 0;
  }
  static uint32_t exception_bit(size_t slot) { return uint32_t{4} << slot % 30; }
  int64_t key(int32_t value, size_t slot) const {
    return static_cast<int64_t>(value) * static_cast<int64_t>(num_slots_) +
           static_cast<int64_t>(slot);
  }
  bool is_exception(int32_t value, size_t slot) const {
    return std::binary_search(exceptions_.begin(), exceptions_.end(), key(value, slot));
  }

  size_t num_slots_;
  std::vector<uint32_t> rules_;      // per value
  std::vector<int64_t> exceptions_;  // sorted keys of value and slot >= 1
  std::vector<int32_t> chosen_;
};

// Returns the plan that ordinary autograd follows: at the end of the forward it drops all values
// but those that a backward node reads, or reads a view of.
RetentionPlan keep_what_is_read(const Problem& problem);

}  // namespace aten_recompute
