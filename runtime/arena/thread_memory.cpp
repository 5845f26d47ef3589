#include "runtime/arena/thread_memory.h"

namespace aten_recompute {

ThreadMemory& ThreadMemory::current() {
  // An allocator is asked for bytes, and told nothing of who needs them but by the thread.
  static thread_local ThreadMemory memory;
  return memory;
}

}  // namespace aten_recompute
