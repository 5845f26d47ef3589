// Computes what a plan costs: its schedule, its time, and the bytes alive in each step. All
// strategies go through the simulator, so all plans are simulated as they run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "planner/model/memory_tables.h"
#include "planner/model/peak_step.h"
#include "planner/model/problem.h"
#include "planner/model/retention_plan.h"
#include "planner/model/scheduler.h"

namespace aten_recompute {

struct Simulation {
  int64_t peak_bytes = 0;
  int32_t peak_step = 0;           // index into the schedule
  int64_t forward_peak_bytes = 0;  // during steps of the forward
  int64_t saved_bytes = 0;         // alive between forward and backward, of one call
  double recompute_seconds = 0.0;  // beyond Problem::base_seconds()
  double excess = 0.0;             // sum over forward steps and slots of the bytes beyond the limit
};

// A plan, and what its simulation showed.
struct SimulatedRun {
  RetentionPlan plan;
  Schedule schedule;
  // Per step: bytes alive while it runs, those of other calls and backwards included.
  std::vector<int64_t> step_bytes;
  // Per step: what other calls and backwards hold; empty if there are none.
  std::vector<int64_t> other_bytes;
  // Per value that takes memory: the backward reads what the forward made.
  std::vector<uint8_t> captured;
};

// Holds the working memory of a run, so one object serves many calls; it must not be used by
// several threads at once.
class Simulator {
 public:
  // `problem` must outlive the simulator and must not change.
  explicit Simulator(const Problem& problem);

  // Schedules with more backward steps than this are given up: their peak and time are reported as
  // infinite, and last_run() has no steps.
  void set_max_steps(size_t max_steps) { max_steps_ = max_steps; }

  // See Scheduler::drops_only().
  void drops_only(const std::vector<int32_t>& values) { scheduler_.drops_only(values); }

  // Simulates a plan. `limit_bytes` is the limit from which Simulation::excess counts.
  Simulation run(const RetentionPlan& plan,
                 int64_t limit_bytes = std::numeric_limits<int64_t>::max());

  // Returns what is in memory at the peak of the last run, which returned `simulation`. Walks
  // through the steps again.
  PeakStep peak(const Simulation& simulation);

  // The reference is valid as long as the simulator; the next run changes what it refers to.
  const SimulatedRun& last_run() const { return run_; }
  const std::vector<Step>& steps() const { return run_.schedule.steps; }
  const std::vector<Gap>& gaps() const { return run_.schedule.gaps; }
  const std::vector<int64_t>& step_bytes() const { return run_.step_bytes; }
  const std::vector<int64_t>& other_bytes() const { return run_.other_bytes; }
  const std::vector<uint8_t>& captured() const { return run_.captured; }

  // Returns the number of steps without recomputation, optional nodes included.
  int64_t base_steps() const { return static_cast<int64_t>(scheduler_.base_steps()); }
  // Values that a plan may drop: the forward computes them, the backward can recompute them, they
  // are no views, they take memory, and the caller does not hold them.
  const std::vector<int32_t>& droppable() const { return scheduler_.tables().droppable; }
  const Problem& problem() const { return problem_; }

 private:
  enum Life : uint8_t { kDead, kAlive, kDiesHere };

  // The working memory of a run: the state at one point of the walk from the last step to the
  // first.
  struct State {
    explicit State(const Problem& problem);

    int64_t alive_bytes = 0;
    int64_t copied_results_bytes = 0;  // results that the backward holds a second copy of
    int64_t at_loss_bytes = 0;  // alive while the loss runs; 0 once the forward's last step has it
    // Alive when the step is over, but for what the caller made for the loss; of that, gradients.
    int64_t end_bytes = 0;
    int64_t gradient_bytes = 0;
    int64_t freed_bytes = 0;    // of outputs that the loss frees and the backward does not read
    std::vector<uint8_t> life;  // Life per value
    std::vector<int32_t> references;  // per storage: values alive that lie in it
    std::vector<uint8_t> is_rerun;    // per node with replay_bytes: a later step runs it again
  };

  void begin_with_results(bool retains_graph);
  void keep_captured();
  void turn_to_forward(Simulation& result);
  int64_t enter_step(const Step& step, const MemoryTables::Node& node);
  void leave_step(const Step& step, const MemoryTables::Node& node);
  Simulation walk(int64_t limit_bytes, bool retains_graph);
  Simulation walk_all(int64_t limit_bytes);
  void add_others(Simulation& result, int64_t limit_bytes);
  void add_retained_graph();
  void add_dropped_captures();
  void add_other_calls(int64_t saved_bytes);
  std::vector<int64_t> handed_on_bytes() const;
  int64_t bytes_of_other_calls(int64_t bytes) const;
  void add(int32_t value, int64_t own_bytes);
  void remove(int32_t value, int64_t own_bytes);
  void keep(int32_t value);
  bool is_recomputed(int32_t value) const;
  int64_t bytes_of_copied_results() const;
  int64_t bytes_of_unread_outputs(const MemoryTables::Node& node, uint64_t output_mask) const;
  void read(const MemoryTables::Node& node, Life life);
  int64_t bytes_overwritten(const MemoryTables::Node& node, uint32_t reusable_operands) const;
  int64_t bytes_of(const std::vector<int32_t>& values, const std::vector<int32_t>& except) const;
  PeakStep describe_peak(const Simulation& simulation);
  void add_held_results(PeakStep& peak, const Step& step, const std::vector<int32_t>& own) const;

  const Problem& problem_;
  const MemoryTables tables_;
  const int64_t incoming_bytes_;
  Scheduler scheduler_;
  size_t max_steps_ = std::numeric_limits<size_t>::max();
  State state_;
  SimulatedRun run_;
};

}  // namespace aten_recompute
