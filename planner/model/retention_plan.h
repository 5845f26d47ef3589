// What a plan decides: which values are let go, and when. planner/model/scheduler.h says what runs
// as a result, planner/model/simulator.h what that costs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "planner/model/problem.h"

namespace aten_recompute {

// Slots are the points at which values can be let go: slot 0 is the end of the forward, slot b + 1
// comes after the b-th backward node.
//
// Most values go in every slot or stay in every slot, so what is stored is a rule for each value
// and the slots that are exceptions: copies are cheap, and searches make many.
class RetentionPlan {
 public:
  // Everything kept.
  explicit RetentionPlan(const Problem& problem);

  // A value that is in memory and was used in this slot goes at its end. If it is read later, it is
  // then computed again.
  bool dropped(int32_t value, size_t slot) const {
    const auto rule = rules_[value];
    if ((rule & exception_bit(slot)) != 0 && is_exception(value, slot))
      return !follows(rule, slot);
    return follows(rule, slot);
  }
  bool dropped_at_forward_end(int32_t value) const {
    return (rules_[value] & kDropAtForwardEnd) != 0;
  }
  void drop(int32_t value, size_t slot) { set(value, slot, true); }
  void keep(int32_t value, size_t slot) { set(value, slot, false); }
  void set(int32_t value, size_t slot, bool dropped);
  // In all slots at once: dropped whenever it can be, or never.
  void set_always(int32_t value, bool dropped);
  void drop_always(int32_t value) { set_always(value, true); }
  // Each slot by itself: 1 for dropped. Faster than to set() many.
  void set_slots(int32_t value, std::span<const uint8_t> dropped);

  // The node that runs in place of `node` in the backward: itself, or one of its alternatives.
  int32_t chosen(int32_t node) const { return chosen_[node]; }
  void choose(int32_t node, int32_t alternative) { chosen_[node] = alternative; }

  size_t num_slots() const { return num_slots_; }
  // The same in every slot.
  bool operator==(const RetentionPlan& other) const;

 private:
  // Behind these two bits, one for each slot modulo their number: there may be an exception.
  // Without them half of a schedule's last step would be looking exceptions up.
  enum Rule : uint32_t { kDropAtForwardEnd = 1, kDropInBackward = 2, kExceptions = ~uint32_t{3} };

  static bool follows(uint32_t rule, size_t slot) {
    return (rule & (slot == 0 ? kDropAtForwardEnd : kDropInBackward)) != 0;
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

// Keeps, to the end of the forward, every forward value that a backward node reads, or whose view
// one reads, and no other: what ordinary autograd would do.
RetentionPlan keep_what_is_read(const Problem& problem);

}  // namespace aten_recompute
