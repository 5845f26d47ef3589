// Tables that the scheduler reads. They follow from the problem alone, so they are built once and
// serve all plans.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/model/problem.h"
#include "planner/model/schedule.h"

namespace aten_recompute {

// Says whether a served node finds a value in memory, and which program made it: that before or
// that after the loss.
enum Availability : uint8_t {
  kAbsent,
  kFromForward,  // or given
  kFromBackward,
};

struct ScheduleTables {
  explicit ScheduleTables(const Problem& problem);

  JaggedArray base_values;  // per value
  // Per value: the forward makes it, and the backward can recompute it. Views do not count.
  std::vector<uint8_t> is_recomputable;
  std::vector<int32_t> recomputable;  // these values
  std::vector<int32_t> droppable;     // those of them that take memory, and that plans may drop
  JaggedArray views;                  // per base value: the forward's views of it
  // Per base value, in pairs: the slot in which a backward node makes a view of it, and the slot of
  // the view's last use. In between, dropping the base value would free nothing, and recomputing it
  // would need memory for a copy.
  JaggedArray view_spans;
  std::vector<uint8_t> may_overwrite_forward;  // per node: some of its overwrites are no memory of
                                               // the backward
  // Availability per value, at the end of slot 0, if nothing is dropped.
  std::vector<uint8_t> available_at_start;
  std::vector<Step> first_steps;  // those of slot 0, optional nodes included
  // Where nodes of the forward are served: values that are gone at the loss, though nothing drops
  // them. Views, because the backward makes them again, and results that the caller may change from
  // then on. Before the loss results are in memory anyway.
  std::vector<int32_t> absent_after_loss;
  std::vector<uint8_t> stays_before_loss;  // per value: these results
  // Per node, and 0 after the last: it is served and only looks at sizes of tensors, or is
  // optional. Nothing is dropped before it, so that what the node before has made is still there.
  std::vector<uint8_t> is_idle;
  bool any_optional = false;

 private:
  void find_values(const Problem& problem);
  void find_view_spans(const Problem& problem);
  void find_absent_after_loss(const Problem& problem);
  void find_first_steps(const Problem& problem);
  void find_overwrites(const Problem& problem);
};

// The values whose uses the scheduler keeps track of, because plans may drop them in the backward.
struct TrackedValues {
  // `values` that cannot be recomputed are left out.
  TrackedValues(const Problem& problem, const ScheduleTables& tables,
                const std::vector<int32_t>& values);

  std::vector<uint8_t> is_tracked;  // per value
  // Per value: its first tracked base value (-1: none), and all of them.
  std::vector<int32_t> first_base;
  JaggedArray bases;
  // Per node: the inputs that may be absent, or that use a tracked value.
  JaggedArray needs;
};

}  // namespace aten_recompute
