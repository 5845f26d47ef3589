#include "runtime/arena/system_memory.h"

#include <c10/core/Allocator.h>
#include <malloc.h>
#include <sys/mman.h>

#include <cstddef>
#include <string_view>

#include "common/environment.h"

namespace aten_recompute {

void* map_block(int64_t bytes) {
  void* const block = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return block == MAP_FAILED ? nullptr : block;
}

void unmap_block(void* block, int64_t bytes) {
  munmap(block, static_cast<size_t>(bytes));
}

void give_back_free_heap() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

bool arenas_are_off() {
  static const bool are_off = environment_is("RECOMPUTE_ARENA", "off");
  return are_off;
}

void report_to_profiler(const void* block, int64_t bytes) {
  if (c10::memoryProfilingEnabled()) {
    c10::reportMemoryUsageToProfiler(const_cast<void*>(block), bytes, 0, 0,
                                     c10::Device(c10::DeviceType::CPU));
  }
}

}  // namespace aten_recompute
