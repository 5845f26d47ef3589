// Derives the schedule of a plan: the forward, then each served node, preceded by the nodes that
// are recomputed for it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "planner/model/problem.h"
#include "planner/model/retention_plan.h"
#include "planner/model/schedule.h"
#include "planner/model/schedule_tables.h"

namespace aten_recompute {

// Searches call it tens of thousands of times, so it reads everything that does not depend on the
// plan from tables. It holds the working memory of a run and must not be used by several threads at
// once.
class Scheduler {
 public:
  // `problem` must outlive the scheduler and must not change.
  explicit Scheduler(const Problem& problem);

  // Promises that plans drop only these values in slots of the backward. This saves time, and gaps
  // are recorded for no others. At first all recomputable values are tracked, and they stay so
  // where nodes of the forward are served.
  void drops_only(const std::vector<int32_t>& values);

  // Writes the schedule of `plan` into `schedule`, reusing its memory. Returns false, without steps
  // and gaps, if more than `max_steps` steps come after the first slot.
  bool run(const RetentionPlan& plan, Schedule& schedule,
           size_t max_steps = std::numeric_limits<size_t>::max());

  // Returns the number of steps without recomputation, optional nodes included.
  size_t base_steps() const { return tables_.first_steps.size() + problem_.num_slots() - 1; }

  const ScheduleTables& tables() const { return tables_; }

 private:
  // A node that has to run again in the current slot.
  struct Rerun {
    int32_t position;  // in forward order: of the node itself, or of the one that it replaces
    int32_t node;
  };

  // The working memory of a run.
  struct State {
    explicit State(const Problem& problem);

    int32_t slot = 0;
    std::vector<uint8_t> available;     // Availability per value
    std::vector<int32_t> last_use;      // per base value: the last slot that used it
    std::vector<int32_t> used_in_slot;  // base values used in the current slot
    std::vector<uint8_t> is_pending;    // per node: it has to run again in the current slot
    std::vector<Rerun> reruns;          // these nodes
    std::vector<int32_t> stack;
    std::vector<uint8_t> is_wanted;  // per node: an optional forward node whose outputs are read
  };

  void reset(const RetentionPlan& plan, Schedule& schedule);
  void run_slot(int32_t node, const RetentionPlan& plan, Schedule& schedule);
  void require(int32_t value, const RetentionPlan& plan, Schedule& schedule);
  int32_t node_for(int32_t value, const RetentionPlan& plan) const;
  void note_use(int32_t value, Schedule& schedule);
  void note_made(int32_t output);
  void add_rerun(int32_t node, Schedule& schedule);
  uint32_t reusable_operands(int32_t node) const;
  bool is_viewed_by_backward(int32_t base) const;
  bool stays_once_made_again(int32_t base) const;
  void drop(int32_t base);
  void drop_values(const RetentionPlan& plan);
  void pass_loss();
  uint8_t made_now() const;
  void leave_out_unwanted(Schedule& schedule) const;

  const Problem& problem_;
  const ScheduleTables tables_;
  TrackedValues tracked_;
  State state_;
};

}  // namespace aten_recompute
