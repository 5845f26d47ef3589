// Counts the memory of a step, from a call of a method to the end of its backward.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace aten_recompute {

// Counts what one thread allocates on the CPU from start() to stop(): a call, a loss, and the
// backward that the autograd engine runs for it. It wraps LibTorch's CPU allocator meanwhile
// instead of registering as a profiler, because a real profiler may begin at any time. Each block
// is freed by the allocator that it came from, however late. There is at most one watch in a
// process.
class StepMemoryWatch {
 public:
  // Starts to count the calling thread. Returns nullptr if there is a watch already, or if the
  // present allocator cannot be wrapped.
  static std::unique_ptr<StepMemoryWatch> start();
  ~StepMemoryWatch();
  StepMemoryWatch(const StepMemoryWatch&) = delete;
  StepMemoryWatch& operator=(const StepMemoryWatch&) = delete;

  // Ends counting and puts the allocator back. May be called repeatedly.
  void stop();
  // Returns whether allocations of the calling thread are counted.
  bool is_here() const;

  int64_t alive_bytes() const;  // allocated since the start and not freed
  int64_t peak_bytes() const;   // the greatest alive_bytes() since the last reset_peak()
  void reset_peak();

 private:
  StepMemoryWatch();
  std::atomic<bool> is_stopped_{false};
};

}  // namespace aten_recompute
