// Measures the memory that operators allocate on this thread, on any device, without replacing an
// allocator.
#pragma once

#include <cstdint>
#include <memory>

namespace aten_recompute {

// While an instance exists, LibTorch's allocators report to it, as they do to a profiler. Another
// profiler does not see this thread meanwhile, and its callbacks are off. Memory that was allocated
// before is not counted, nor is its release.
class MemoryWatch {
 public:
  MemoryWatch();
  ~MemoryWatch();
  MemoryWatch(const MemoryWatch&) = delete;
  MemoryWatch& operator=(const MemoryWatch&) = delete;

  int64_t alive_bytes() const;  // allocated since the last reset() and not yet freed
  int64_t peak_bytes() const;   // the maximum of alive_bytes() since the last reset()
  // Returns the size of one block as the allocator rounds it, or 0 if no allocator reported it.
  int64_t bytes_at(const void* pointer) const;
  void reset();  // counts from zero again

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace aten_recompute
