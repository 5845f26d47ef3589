// Counts what operators allocate on this thread, on any device, without replacing an allocator.
#pragma once

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

}  // namespace aten_recompute
