// The calls whose backward may still come.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "backend/memory/caller_behavior.h"

namespace aten_recompute {

// Counts the calls that are made before one backward, as siamese networks, generators with their
// critics and sums of losses do: what each of them keeps is in memory until its backward. Calls of
// each thread are counted alone. Thread-safe.
class PendingCalls : public std::enable_shared_from_this<PendingCalls> {
 public:
  // Returns the calls of the process.
  static PendingCalls& of_process();

  // A call that has returned.
  struct Kept {
    std::shared_ptr<CallerBehavior> caller;  // of its plan
    // What the call keeps for its backward if nothing is made again, and what a call of the sizes
    // that its plan was made for does: bytes that do not depend on plans.
    double bytes = 0.0;
    double planned_bytes = 0.0;
  };
  // The other calls of a step, as one of its calls sees them.
  struct Others {
    int64_t num_earlier = 0;
    uint64_t first_earlier = 0;  // the number of the first of these
    bool has_later = false;
    double like_planned = 0.0;  // as CallerAssumptions::other_calls
  };

  // A call, until its backward has begun.
  class Call {
   public:
    Call(std::shared_ptr<PendingCalls> calls, std::thread::id thread, uint64_t number)
        : calls_(std::move(calls)), thread_(thread), number_(number) {}
    ~Call() { calls_->end(*this); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    // Notes that the backward of this call begins. If it is the first one since a call was made,
    // the plans of all that wait learn what the others keep. Returns the others of this call, as
    // they were in the first backward after it.
    Others begin_backward() const { return calls_->begin_backward(*this); }

    uint64_t number() const { return number_; }

   private:
    friend class PendingCalls;
    const std::shared_ptr<PendingCalls> calls_;
    const std::thread::id thread_;
    const uint64_t number_;
  };

  // Returns the number of the next call that is added.
  uint64_t next_number();

  // Adds a call of the calling thread that has returned.
  std::unique_ptr<Call> add(Kept kept);

 private:
  struct Entry {
    uint64_t number = 0;
    Kept kept;
    uint64_t num_backwards = 0;  // that began since the call returned
    Others others{};             // when the first of these began
  };
  struct CallsOfThread {
    std::vector<Entry> waiting;  // in their order
    double bytes = 0.0;          // that they keep
    // Calls since the last backward began, by number, and `bytes` when they had returned, without
    // those that a later one is not below. Some may be gone, such as one whose result is a target
    // without a gradient.
    std::vector<std::pair<uint64_t, double>> returned;
  };

  void end(const Call& call);
  Others begin_backward(const Call& call);
  // Finds the others of each call, when a backward begins.
  static void find_others(CallsOfThread& calls);

  std::mutex mutex_;
  std::map<std::thread::id, CallsOfThread> calls_;
  uint64_t num_added_ = 0;
};

}  // namespace aten_recompute
