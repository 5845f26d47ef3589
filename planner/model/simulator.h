// What a plan costs: decisions -> schedule -> bytes alive in each step. All strategies go through
// here, so all are simulated as they run.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "planner/model/problem.h"
#include "planner/model/retention_plan.h"
#include "planner/model/scheduler.h"

namespace aten_recompute {

struct Simulation {
  int64_t peak_bytes = 0;
  int32_t peak_step = 0;           // index into the schedule
  int64_t forward_peak_bytes = 0;  // of the forward's steps
  int64_t saved_bytes = 0;         // alive between forward and backward
  double recompute_seconds = 0.0;  // beyond Problem::base_seconds()
  double excess = 0.0;  // sum over forward nodes and slots of what exceeds the limit, bytes
};

// Builds the schedule that follows from decisions, and walks it. Holds its working memory, so that
// one object serves many calls; not for several threads at once.
class Simulator {
 public:
  // `problem` outlives it.
  explicit Simulator(const Problem& problem);

  // Gives up on schedules of more steps than this: their peak and time are reported as endless, and
  // steps() is empty.
  void set_max_steps(size_t max_steps) { max_steps_ = max_steps; }

  // Scheduler::drops_only().
  void drops_only(const std::vector<int32_t>& values) { scheduler_.drops_only(values); }

  // The schedule, then the walk. `limit_bytes` is what `excess` counts from.
  Simulation run(const RetentionPlan& decisions,
                 int64_t limit_bytes = std::numeric_limits<int64_t>::max());

  // Scheduler::base_steps().
  int64_t base_steps() const { return static_cast<int64_t>(scheduler_.base_steps()); }

  // Of the last run.
  const std::vector<Step>& steps() const { return scheduler_.steps(); }
  const std::vector<Gap>& gaps() const { return scheduler_.gaps(); }
  // Of the last run: bytes alive while each step ran.
  const std::vector<int64_t>& step_bytes() const { return step_bytes_; }
  // Of the last run, per forward value that takes memory: does the backward read what the forward
  // made of it.
  const std::vector<uint8_t>& captured() const { return captured_; }

  const std::vector<int32_t>& droppable() const { return scheduler_.droppable(); }
  const Problem& problem() const { return problem_; }

 private:
  // Ranges of the arrays below.
  struct Range {
    int32_t begin = 0;
    int32_t end = 0;
  };
  // What a step of a node does to the memory, of values that take any.
  struct NodeMemory {
    double seconds = 0.0;
    int64_t workspace_bytes = 0;
    int64_t replay_bytes = 0;
    Range reads;
    Range makes;
    Range overwrites;
    bool makes_views = false;
  };
  struct Read {
    int32_t value = 0;
    int64_t own_bytes = 0;  // as own_bytes_
  };
  struct Make {
    int32_t value = 0;
    uint64_t output_mask = 0;  // its bit of Step::bound
    int64_t own_bytes = 0;     // as own_bytes_
  };
  struct Overwrite {
    int32_t value = 0;
    int32_t storage = 0;             // of the value
    uint32_t reusable_operands = 0;  // its bit of Step::reusable_operands
    int64_t bytes = 0;
  };
  enum Life : uint8_t { kDead, kAlive, kDiesHere };

  void find_storages();
  void describe(int32_t node);
  void begin_with_results();
  void turn_to_forward(Simulation& result);
  Simulation walk(int64_t limit_bytes);
  void add(int32_t value, int64_t own_bytes);
  void remove(int32_t value, int64_t own_bytes);
  bool is_freed_before_backward(int32_t value) const;
  int64_t bytes_held_beside() const;
  int64_t bytes_made_unread(const NodeMemory& node, uint64_t output_mask) const;
  void read(const NodeMemory& node, Life life);
  int64_t bytes_taken_over(const NodeMemory& node, uint32_t reusable_operands);

  const Problem& problem_;
  Scheduler scheduler_;
  double base_seconds_;
  size_t max_steps_ = std::numeric_limits<size_t>::max();

  JaggedArray storages_;  // per value: those that count
  // Per value: bytes of its only storage, where no other value lies there; else -1. Nobody needs to
  // count who uses such a storage.
  std::vector<int64_t> own_bytes_;
  std::vector<NodeMemory> nodes_;
  std::vector<Read> reads_;
  std::vector<Make> makes_;
  std::vector<Overwrite> overwrites_;
  std::vector<int32_t> forward_results_;
  std::vector<int32_t> backward_results_;

  std::vector<int64_t> step_bytes_;
  std::vector<uint8_t> captured_;

  // At some point of the walk.
  int64_t alive_ = 0;                // bytes
  int64_t held_beside_ = 0;          // bytes
  int64_t at_loss_ = 0;              // bytes between forward and backward
  std::vector<uint8_t> live_;        // Life, per value
  std::vector<int32_t> references_;  // per storage: live values on it
  std::vector<uint8_t> runs_again_;  // per node with replay_bytes: what it needs is being kept
};

}  // namespace aten_recompute
