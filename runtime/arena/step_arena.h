// Serves what the operators of a step allocate from an arena, at planned offsets.
//
// The first step is recorded: each block comes from the system by itself, so that even this step
// takes no more memory than it uses. Once it is over, its blocks are placed in an arena, and the
// steps that follow find their blocks there. A block is known by the instruction that allocates it,
// not by its number in the step, so a step may leave out instructions. What was not recorded, or
// does not fit, or would lie where an earlier block is still in use, is left to the allocator
// underneath, and counted.
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include "runtime/arena/arena.h"
#include "runtime/arena/block_plan.h"

namespace aten_recompute {

// Figures of the steps of one plan, for reports.
struct ArenaFigures {
  int64_t arena_bytes = 0;    // size of the arena; 0 before a step has been recorded
  int64_t alive_bytes = 0;    // the most that is alive in it at once: a lower bound of its size
  size_t num_blocks = 0;      // that a step allocates, those that leave the step included
  size_t num_steps = 0;       // that have begun
  size_t num_records = 0;     // of these, steps that were recorded
  size_t num_unforeseen = 0;  // blocks of served steps that were not found in the arena
  int64_t unforeseen_bytes = 0;
};

class StepArena;

// The plans of the steps that begin with one compiled region. Thread-safe.
class ArenaPlans : public std::enable_shared_from_this<ArenaPlans> {
 public:
  // Returns the arena of a step that begins now. Returns nullptr if it is to run without one: while
  // the recorded step is not over, for a few steps, and where a step is too small to gain anything.
  // `releases` says that the arena's memory goes back to the system after each step.
  std::shared_ptr<StepArena> begin(bool releases);
  ArenaFigures figures() const;
  // Returns the plan that steps follow; nullptr before a step has been recorded and placed.
  std::shared_ptr<const BlockPlan> plan() const;

 private:
  friend class StepArena;
  void note_unforeseen(int64_t bytes, bool is_larger);
  // Notes that a step with an arena has ended, `seconds` after it began.
  void note_step(double seconds);
  // Searches on for better places, for a small share of the time of all steps: what a search takes
  // longer, because a single try does, later steps save. Returns a better plan, or nullptr. Needs
  // mutex_ to be held.
  std::shared_ptr<BlockPlan> searched_plan();

  mutable std::mutex mutex_;
  std::shared_ptr<BlockPlan> plan_;
  std::shared_ptr<StepRecord> record_;  // of a step that may not be over yet
  size_t num_waited_ = 0;               // steps that have begun while it was not over
  ArenaFigures figures_;
  bool is_too_small_ = false;      // the recorded step was not worth an arena
  bool is_unlike_record_ = false;  // a step had allocations that the record does not have
  // Of the fastest step: others may have waited for what their caller does. 0 before the first one.
  double seconds_of_step_ = 0;
  double seconds_to_search_ = 0;  // negative where a search took longer than it might
  size_t next_record_ = 0;        // number of the step from which on another record may be made
};

// The arena of one step. Thread-safe.
class StepArena {
 public:
  // Follows `plan` in `arena`, or writes a record if there is no plan.
  StepArena(std::shared_ptr<ArenaPlans> plans, std::shared_ptr<BlockPlan> plan,
            std::shared_ptr<Arena> arena, std::shared_ptr<StepRecord> record, bool releases)
      : plans_(std::move(plans)),
        plan_(std::move(plan)),
        arena_(std::move(arena)),
        record_(std::move(record)),
        releases_(releases) {}
  ~StepArena();
  StepArena(const StepArena&) = delete;
  StepArena& operator=(const StepArena&) = delete;

  // Returns memory for the block, or nullptr if the allocator underneath is to serve it.
  void* allocate(const BlockKey& key, int64_t bytes);
  // Returns whether the step is recorded instead of served.
  bool is_recorded() const { return record_ != nullptr; }
  // Returns the number of a run that begins.
  size_t begin_run() { return num_runs_++; }
  // The step is over when each part that was opened is closed: the method call and its runs.
  void open() { ++num_open_; }
  void close();
  bool is_over() const { return is_over_; }

 private:
  void end();

  std::shared_ptr<ArenaPlans> plans_;
  std::shared_ptr<BlockPlan> plan_;
  std::shared_ptr<Arena> arena_;
  std::shared_ptr<StepRecord> record_;
  bool releases_;
  std::atomic<size_t> num_runs_{0};
  std::atomic<size_t> num_open_{0};
  std::atomic<bool> is_over_{false};
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

// Keeps a step open; closes it once, at the latest when it is destroyed.
class OpenStep {
 public:
  OpenStep() = default;
  explicit OpenStep(std::shared_ptr<StepArena> step) : step_(std::move(step)) {
    if (step_ != nullptr)
      step_->open();
  }
  ~OpenStep() { close(); }
  OpenStep(OpenStep&& other) noexcept : step_(std::move(other.step_)) {}
  OpenStep& operator=(OpenStep&& other) noexcept {
    std::swap(step_, other.step_);
    return *this;
  }

  StepArena* get() const { return step_.get(); }
  const std::shared_ptr<StepArena>& shared() const { return step_; }
  void close() {
    if (const auto step = std::move(step_))
      step->close();
  }

 private:
  std::shared_ptr<StepArena> step_;
};

// A call of a method on this thread. The regions that it runs belong to one step.
class ArenaCall {
 public:
  ArenaCall();
  ~ArenaCall();
  ArenaCall(const ArenaCall&) = delete;
  ArenaCall& operator=(const ArenaCall&) = delete;

  // Returns the step of the innermost call on this thread. The first region of a call decides by
  // its plans. Returns nullptr where there is no call, or its step has no arena. From then on to
  // the end of the step, what this thread allocates between regions belongs to the step, too: the
  // loss, and what other operators of the method make.
  static std::shared_ptr<StepArena> step_for(ArenaPlans& plans, bool releases);

 private:
  ArenaCall* outer_;
  bool has_begun_ = false;
  OpenStep step_;
};

// While it exists, what this thread allocates on the CPU belongs to a pass of a step.
class AllocationScope {
 public:
  // `program` tells which program's instructions are counted. With nullptr for `step`, it has no
  // effect.
  AllocationScope(StepArena* step, PassKey pass, const void* program);
  ~AllocationScope();
  AllocationScope(const AllocationScope&) = delete;
  AllocationScope& operator=(const AllocationScope&) = delete;

  // Returns the scope of this thread if it is for this program; nullptr otherwise.
  static AllocationScope* of(const void* program);
  // Serves a request of this thread. Returns nullptr if the allocator underneath is to serve it.
  static void* allocate(size_t bytes);

  // Notes that an instruction begins.
  void enter(size_t instruction) {
    key_.instruction = instruction;
    key_.ordinal = 0;
  }

 private:
  StepArena* step_;
  BlockKey key_;
  const void* program_;
  AllocationScope* outer_;
};

// While it exists, what this thread allocates belongs to no step, as while a region is compiled.
class OutsideOfSteps {
 public:
  OutsideOfSteps();
  ~OutsideOfSteps();
  OutsideOfSteps(const OutsideOfSteps&) = delete;
  OutsideOfSteps& operator=(const OutsideOfSteps&) = delete;
};

// Frees memory that a StepArena or ScratchMemory returned. Returns false if neither did.
bool free_block(const void* block);

}  // namespace aten_recompute
