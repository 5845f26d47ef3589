// The plans of a region or of a method, by the shapes that they were made for.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "backend/memory/input_shapes.h"
#include "common/lru_cache.h"

namespace aten_recompute {

// Holds at most kMaxPlans plans and drops the least recently used one. `Plan` has a function
// shapes_of(plan). Not thread-safe.
template <class Plan>
class PlanCache {
 public:
  // Returns the plan that was made for these shapes. With none, and unless `exact`, returns one
  // whose shapes cover them: it keeps its peak in bytes, as every value is at most as large. The
  // plan counts as used now. Returns nullptr where there is none.
  const Plan* find(const InputShapes& shapes, bool exact = false) {
    const Plan* found = plans_.find([&](const Plan& plan) { return shapes_of(plan) == shapes; });
    if (found == nullptr && !exact)
      found = plans_.find([&](const Plan& plan) { return shapes_of(plan).cover(shapes); });
    return found;
  }

  // Returns the most recently used plan for which the condition holds, which counts as used now;
  // nullptr where there is none.
  template <class Condition>
  const Plan* find_if(const Condition& condition) {
    return plans_.find(condition);
  }

  void insert(Plan plan) {
    in_order_.push_back(plan);
    if (const auto dropped = plans_.insert(std::move(plan)))
      std::erase(in_order_, *dropped);
  }

  // Removes plans. Returns whether there were any.
  template <class Condition>
  bool erase_if(const Condition& condition) {
    std::erase_if(in_order_, condition);
    const auto before = plans_.size();
    plans_.erase_if(condition);
    return plans_.size() < before;
  }

  bool empty() const { return in_order_.empty(); }
  // Returns the plans in the order in which they were made.
  const std::vector<Plan>& in_order() const { return in_order_; }

 private:
  LruCache<Plan> plans_{kMaxPlans};
  std::vector<Plan> in_order_;
};

}  // namespace aten_recompute
