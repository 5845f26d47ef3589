// Memory for what runs once before a step, such as the operators of a profile.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>

namespace aten_recompute {

// While it exists, large blocks that this thread allocates on the CPU outside of steps are mapped
// one by one. With its end, those that are free go back to the system, as does what the C library
// keeps of freed memory. Otherwise the C library would keep most of it: it takes blocks of a size
// that it has seen freed from its heap, which shrinks only from the top, and the step that follows
// would take this memory in addition to its own.
//
// Freed blocks serve later requests of about their size, so that an operator that is timed does not
// wait for the system to clear pages. Together with these, no more is mapped than was in use at
// once.
class ScratchMemory {
 public:
  ScratchMemory();
  ~ScratchMemory();
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;

  // Returns a block of the innermost instance of this thread. Returns nullptr where there is none,
  // the block is not worth mapping, or the system has no memory.
  static void* allocate(int64_t bytes);
  // Gives the free blocks of the innermost instance of this thread back to the system.
  static void release_free_blocks();
  // Frees a block of any instance. Returns false if it is none of these.
  static bool free(const void* block);

  // Thrown by allocate().
  class LimitReached : public std::runtime_error {
   public:
    LimitReached() : std::runtime_error("what runs before a step needs more memory than it may") {}
  };

  // While it exists, allocate() throws LimitReached on this thread where the blocks of the
  // innermost instance that are in use would have more than `bytes` bytes together, or more than
  // an outer limit allows.
  class Limit {
   public:
    explicit Limit(int64_t bytes);
    ~Limit();
    Limit(const Limit&) = delete;
    Limit& operator=(const Limit&) = delete;

    // Returns whether no outer limit is smaller.
    bool is_binding() const { return is_binding_; }

   private:
    int64_t before_ = 0;
    bool is_binding_ = true;
  };

 private:
  class Pool;
  class Blocks;

  std::shared_ptr<Pool> pool_;
  void* outer_;  // the pool of the instance around this one; nullptr if there is none
};

}  // namespace aten_recompute
