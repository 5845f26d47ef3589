// The layer below the arenas: it takes single blocks from the system, trims the heap of the C
// library, and reports allocations to a profiler.
#pragma once

#include <cstdint>

namespace aten_recompute {

// Returns whether a block of this size is worth a mapping of its own.
constexpr bool is_worth_mapping(int64_t bytes) {
  constexpr int64_t kLeast = int64_t{64} * 1024;
  return bytes >= kLeast;
}

// Returns `bytes` bytes of new memory, all zero; nullptr where the system has none. unmap_block()
// gives them back to the system at once, which freed memory of the C library may wait for long.
void* map_block(int64_t bytes);
void unmap_block(void* block, int64_t bytes);

// Gives back to the system what the C library keeps of freed memory.
void give_back_free_heap();

// Returns whether RECOMPUTE_ARENA=off leaves all memory of this process to LibTorch's
// allocator, whatever the options say.
bool arenas_are_off();

// Tells a profiler of an allocation on the CPU, or with a negative size of a release.
void report_to_profiler(const void* block, int64_t bytes);

}  // namespace aten_recompute
