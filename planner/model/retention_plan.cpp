#include "planner/model/retention_plan.h"

#include <algorithm>

namespace aten_recompute {

RetentionPlan::RetentionPlan(const Problem& problem)
    : num_slots_(problem.num_slots()), rules_(problem.num_values(), 0) {
  chosen_.resize(problem.num_all_nodes());
  for (size_t i = 0; i < chosen_.size(); ++i)
    chosen_[i] = static_cast<int32_t>(i);
}

void RetentionPlan::set(int32_t value, size_t slot, bool dropped) {
  auto& rule = rules_[value];
  if (slot == 0) {
    rule = dropped ? rule | kDropInFirstSlot : rule & ~uint32_t{kDropInFirstSlot};
    return;
  }
  const bool exception = follows(rule, slot) != dropped;
  if (!exception && (rule & exception_bit(slot)) == 0)
    return;
  const auto wanted = key(value, slot);
  const auto place = std::lower_bound(exceptions_.begin(), exceptions_.end(), wanted);
  const bool found = place != exceptions_.end() && *place == wanted;
  if (exception && !found) {
    exceptions_.insert(place, wanted);
    rule |= exception_bit(slot);
  } else if (!exception && found) {
    exceptions_.erase(place);
  }
}

void RetentionPlan::set_always(int32_t value, bool dropped) {
  auto& rule = rules_[value];
  if ((rule & kExceptions) != 0) {
    const auto begin = std::lower_bound(exceptions_.begin(), exceptions_.end(), key(value, 0));
    const auto end = std::lower_bound(begin, exceptions_.end(), key(value + 1, 0));
    exceptions_.erase(begin, end);
  }
  rule = dropped ? uint32_t{kDropInFirstSlot} | kDropInOthers : 0;
}

void RetentionPlan::set_slots(int32_t value, std::span<const uint8_t> dropped) {
  const auto in_backward = dropped.subspan(1);
  const auto num_dropped = std::count(in_backward.begin(), in_backward.end(), uint8_t{1});
  const bool mostly = 2 * static_cast<size_t>(num_dropped) > in_backward.size();
  set_always(value, mostly);
  set(value, 0, dropped[0] != 0);
  std::vector<int64_t> found;
  for (size_t slot = 1; slot < dropped.size(); ++slot) {
    if ((dropped[slot] != 0) == mostly)
      continue;
    found.push_back(key(value, slot));
    rules_[value] |= exception_bit(slot);
  }
  exceptions_.insert(std::lower_bound(exceptions_.begin(), exceptions_.end(), key(value, 0)),
                     found.begin(), found.end());
}

bool RetentionPlan::operator==(const RetentionPlan& other) const {
  if (num_slots_ != other.num_slots_ || rules_.size() != other.rules_.size() ||
      chosen_ != other.chosen_) {
    return false;
  }
  if (rules_ == other.rules_ && exceptions_ == other.exceptions_)
    return true;
  for (size_t value = 0; value < rules_.size(); ++value) {
    const auto which = static_cast<int32_t>(value);
    const bool plain = ((rules_[value] | other.rules_[value]) & kExceptions) == 0;
    const size_t slots = plain ? std::min<size_t>(2, num_slots_) : num_slots_;
    for (size_t slot = 0; slot < slots; ++slot) {
      if (dropped(which, slot) != other.dropped(which, slot))
        return false;
    }
  }
  return true;
}

RetentionPlan keep_what_is_read(const Problem& problem) {
  RetentionPlan plan(problem);
  const auto bases = base_values(problem);
  const auto is_read = read_by_backward(problem, bases);
  const auto last_slots = last_slots_of_forward(problem, bases);
  for (size_t value = 0; value < problem.num_values(); ++value) {
    if (is_read[value] == 0)
      plan.drop(static_cast<int32_t>(value), static_cast<size_t>(last_slots[value]));
  }
  return plan;
}

}  // namespace aten_recompute
