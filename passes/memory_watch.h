// Counts what operators allocate on this thread, on any device, without replacing an allocator.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

namespace aten_recompute {

// While it lives, LibTorch's allocators report to it (they do so for profilers; another profiler's
// view of this thread is shadowed meanwhile, and its callbacks are off). Memory that was alive
// before is not counted, neither is its end.
class MemoryWatch {
 public:
  MemoryWatch();
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  int64_t alive_bytes() const;  // allocated since the last reset() and not yet freed
  int64_t peak_bytes() const;   // the greatest alive_bytes() since then
  // Of one block, as the allocator rounds it; 0 for memory that did not come from an allocator.
  int64_t bytes_at(const void* pointer) const;
  void reset();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same of the CPU from start() to stop(), also in what runs between on the same thread: a loss,
// and the backward that the autograd engine runs for it. A profiler's place stays free, as one may
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
