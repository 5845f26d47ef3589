// Whose memory it is that a thread allocates.
#pragma once

#include <cstddef>
#include <memory>

#include "runtime/arena/block_plan.h"

namespace aten_recompute {

class AllocationScope;
class ArenaCall;
class StepArena;

struct ThreadMemory {
  // Destructors of other thread-local objects may allocate afterward.
  ~ThreadMemory() { step = nullptr; }

  AllocationScope* scope = nullptr;
  ArenaCall* call = nullptr;
  size_t num_outside = 0;  // instances of OutsideOfSteps
  // The step that this thread has begun last, as long as it is not over, and the block that is
  // allocated next between the programs of its regions.
  std::shared_ptr<StepArena> step;
  BlockKey key{PassKey::between()};
  // The state of the innermost ScratchMemory. It is no shared pointer, because destructors of other
  // thread-local objects may allocate after a shared pointer would be destroyed.
  void* scratch = nullptr;

  void forget_step() {
    step = nullptr;
    key = BlockKey{PassKey::between()};
  }

  // Returns that of this thread.
  static ThreadMemory& current();
};

}  // namespace aten_recompute
