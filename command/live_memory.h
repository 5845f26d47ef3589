// Counts the bytes of the CPU's tensors that are alive.
#pragma once

#include <cstdint>

namespace aten_recompute::command {

// While the object exists, PyTorch's CPU allocator is wrapped by one that counts what is allocated,
// by any thread and whoever allocates. Bytes are those that were asked for. There is one object at
// a time, and no other thread may allocate while it is made or destroyed.
class LiveMemory {
 public:
  LiveMemory();
  ~LiveMemory();
  LiveMemory(const LiveMemory&) = delete;
  LiveMemory& operator=(const LiveMemory&) = delete;

  // Returns the most that was alive at once of what was allocated since the object was made.
  int64_t peak_bytes() const;
};

}  // namespace aten_recompute::command
