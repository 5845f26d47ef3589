// Watches the memory of one step: a call of a method, the loss, and the backward.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "backend/memory/step_memory_watch.h"
#include "runtime/memory_watch.h"

namespace aten_recompute {

// Number of steps that are watched under one plan, if none of them can be compared with the plan.
constexpr size_t kMaxWatchedSteps = 4;

// Memory of a step: bytes that it had allocated and not freed. Only `peak` contains what calls hold
// from which the watch was taken over.
struct StepMemory {
  std::vector<int64_t> at_forward;    // when each run of a region began
  int64_t saved = 0;                  // when the method had returned
  int64_t loss_peak = 0;              // peak from there to the first backward of a run
  int64_t at_backward = 0;            // when that backward began
  int64_t freed_before_backward = 0;  // part of `saved`: outputs that the caller did not hold
  int64_t peak = 0;                   // peak to the end of the last backward of a run
  int64_t num_others = 0;             // calls from which the watch was taken over
  bool has_unclear_loss = false;      // not all before the backward is the loss
  bool is_first_of_several = false;   // backwards, of which the others are not watched
  size_t num_new_gradients = 0;       // gradients that became the `.grad` of an attribute
  size_t num_added_gradients = 0;     // gradients that were added to a `.grad`

  // Memory of a run's backward, relative to `at_backward`.
  struct Backward {
    bool has_run = false;
    int64_t peak = 0;        // from its first stage to its last
    int64_t peak_after = 0;  // from there to the next run's backward; 0 for the last one to run
  };
  std::vector<Backward> backward;  // per run; empty if it was not watched to the end
};

// A call starts the watch on its thread, and the stages of its regions report when they run.
// Thread-safe.
class StepWatch {
 public:
  // Returns nullptr if another step is watched. `bytes_before` is what the step has allocated until
  // now, and holds to its end. `owner` is what the calls that may take it over have in common,
  // `first_call` the number of the first call that is seen (PendingCalls::next_number()).
  static std::shared_ptr<StepWatch> start(int64_t bytes_before = 0, const void* owner = nullptr,
                                          uint64_t first_call = 0);
  // Goes on with the watch of an earlier call of the calling thread that has returned and whose
  // backward has not begun, so that the peak of a step of several calls is seen: what that call
  // holds counts as held by another one. Returns nullptr where there is no such call of this owner.
  // `bytes_before`: as for start(), of this call.
  static std::shared_ptr<StepWatch> take_over(const void* owner, int64_t bytes_before = 0);

  // Returns whether the memory of all devices is watched to the end of the step, which is so on
  // machines without CUDA.
  static bool sees_all_memory();

  // Notes that a region that takes part in the plan begins its forward. Returns its run number.
  size_t begin_forward();
  // Notes that the method has returned.
  void end_call();

  // These enclose all stages of a run's backward. A backward that the method itself runs counts as
  // part of the call. `freed_before_backward` are the bytes of the run's outputs that are freed.
  // begin_backward() returns whether this is the first backward of the step.
  bool begin_backward(size_t run, int64_t freed_before_backward);
  void end_backward(size_t run);
  // Returns the number of the first call whose memory is seen. All later ones are seen, too,
  // whichever module made them.
  uint64_t first_call() const { return first_call_; }
  // Notes how many calls before this one wait for their backward, whether all of them are seen, and
  // whether there was one after it. If one of the former is not seen, the step cannot be compared
  // with a plan.
  void note_other_calls(int64_t num_earlier, bool are_seen, bool has_later);
  // Notes that the graph stays for another backward, which is not watched.
  void note_retained_graph();
  // Notes a gradient that becomes the `.grad` of a parameter, or with `is_added` is added to it.
  void hand_on(bool is_added);

  void stop();
  // Each region call holds the watch while its backward may still come. When the method has
  // returned and the last call is freed, the watch stops.
  void hold() { ++num_holders_; }
  // Ends what hold() began.
  void release();
  // Returns what was measured so far. StepMemory::backward is empty while a backward runs, and if
  // the backwards did not run one after the other, each once.
  StepMemory memory() const;

 private:
  StepWatch(std::shared_ptr<StepMemoryWatch> watch, int64_t bytes_before, const void* owner,
            uint64_t first_call);
  // Marks the backward as one that cannot be compared with a plan, if `condition` holds.
  void give_up_if(bool condition);

  // Returns the bytes allocated on any device.
  int64_t alive_in_forward() const;

  // Ends this watch, and returns one that goes on; nullptr where this is no watch of a call of the
  // owner and the calling thread that waits for its backward.
  std::shared_ptr<StepWatch> hand_over(const void* owner, int64_t bytes_before);

  const std::shared_ptr<StepMemoryWatch> watch_;
  const int64_t bytes_before_;
  const void* const owner_;
  const uint64_t first_call_;
  int64_t others_bytes_ = 0;  // what the calls hold from which it was taken over
  std::unique_ptr<MemoryWatch>
      on_any_device_;  // set during the forward if there are other devices than the CPU
  mutable std::mutex mutex_;
  StepMemory memory_;
  bool has_begun_ = false;   // a backward has begun
  bool is_running_ = false;  // the backward of run_ is running
  bool is_handed_over_ = false;
  bool has_given_up_ = false;  // the backward cannot be compared with a plan
  size_t run_ = 0;             // the last run whose backward began
  std::atomic<size_t> num_holders_{0};
  std::atomic<bool> has_ended_{false};  // the method has returned
};

}  // namespace aten_recompute
