// The memory of one step: a call of a method with several regions, and the backward behind it.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/step_memory_watch.h"
#include "runtime/memory_watch.h"

namespace aten_recompute {

// How often a step under one plan is watched, where none of them can be compared with the plan.
constexpr size_t kMaxWatchedSteps = 4;

// Bytes that the step had allocated and not freed.
struct StepMemory {
  std::vector<int64_t> at_forward;    // per run of a region, when it began
  int64_t saved = 0;                  // when the method had returned
  int64_t loss_peak = 0;              // from there to the first backward of a run, at most
  int64_t at_backward = 0;            // when that began
  int64_t freed_before_backward = 0;  // by then, of `saved`: outputs that the caller did not hold
  int64_t peak = 0;                   // at most, to the end of the last backward of a run
  size_t num_new_gradients = 0;       // that became the `.grad` of a parameter
  size_t num_added_gradients = 0;     // that were added to one

  // Per run, above what was alive when the backward of the last run began.
  struct Backward {
    bool has_run = false;
    int64_t peak = 0;        // from its first stage to its last
    int64_t peak_after = 0;  // from there to the next run's; of the last one to run: unknown, 0
  };
  std::vector<Backward> backward;  // empty: it was not watched from end to end
};

// Started by a call, on its thread; the stages of its regions say when they run. Thread-safe.
class StepWatch {
 public:
  // nullptr where another step is watched.
  static std::shared_ptr<StepWatch> start();

  // The devices whose memory is watched to the end of the step are all there are.
  static bool sees_all_memory();

  // In the forward: a region that has a part in the plan runs. Returns its number.
  size_t begin_forward();
  void end_call();  // the method has returned

  // Around all stages of a region's backward; one that the method itself runs (forces) counts as a
  // part of the call. `freed_before_backward`: bytes of its outputs that are gone. True:
  // it is the first of the step.
  bool begin_backward(size_t run, int64_t freed_before_backward);
  void end_backward(size_t run);
  // A gradient is handed on that will be the parameter's `.grad`, or is added to it.
  void hand_on(bool is_added);

  void stop();
  // By each of the regions' calls, as long as its backward may come: when the method has returned
  // and there is none, there is nothing to wait for.
  void hold() { ++num_holders_; }
  void freed_before_backward();
  StepMemory memory() const;

 private:
  explicit StepWatch(std::unique_ptr<StepMemoryWatch> watch);
  void give_up_if(bool condition);

  int64_t alive_in_forward() const;

  std::unique_ptr<StepMemoryWatch> watch_;
  std::unique_ptr<MemoryWatch>
      on_any_device_;  // in the forward, where there are others than the CPU
  mutable std::mutex mutex_;
  StepMemory memory_;
  bool has_begun_ = false;     // the backward
  bool is_running_ = false;    // the backward of run_
  bool has_given_up_ = false;  // on the backward
  size_t run_ = 0;             // the last whose backward began
  std::atomic<size_t> num_holders_{0};
  std::atomic<bool> has_ended_{false};  // the call
};

}  // namespace aten_recompute
