// Counts the memory of a step, from a call of a method to the end of its backward.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace aten_recompute {

// Counts what one thread allocates on the CPU from start() to stop(): a call, a loss, and the
// backward that the autograd engine runs for it. A profiler's place stays free, as one may
// begin at any time; so LibTorch's CPU allocator is wrapped meanwhile. Blocks keep what they need
// to be freed by it, whenever that is. One watch at a time in a process.
class StepMemoryWatch {
 public:
  // nullptr where there is a watch already, or an allocator that cannot be wrapped.
  static std::unique_ptr<StepMemoryWatch> start();
  ~StepMemoryWatch();
  StepMemoryWatch(const StepMemoryWatch&) = delete;
  StepMemoryWatch& operator=(const StepMemoryWatch&) = delete;

  // From here on nothing is counted.
  void stop();
  // What this thread allocates is counted.
  bool is_here() const;

  int64_t alive_bytes() const;  // allocated since the start and not freed
  int64_t peak_bytes() const;   // the greatest alive_bytes() since the last reset_peak()
  void reset_peak();

 private:
  StepMemoryWatch();
  std::atomic<bool> is_stopped_{false};
};

}  // namespace aten_recompute
