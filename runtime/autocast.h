// Autocast at run time: whether it is on, and the operators at both ends of its blocks.
#pragma once

#include <cstddef>

namespace aten_recompute {

// Returns whether autocast is on, for the CPU or for CUDA devices. The dispatcher then casts
// operands before an operator runs, so a plan made from the graph would belong to another program.
bool autocast_enabled();

// Registers aten_recompute::enter_autocast(str device, bool enabled, int dtype) and
// aten_recompute::exit_autocast(), which do what torch.autocast does at the ends of its block. The
// latter throws c10::Error where no block is open. Only the first call registers anything.
void register_autocast_operators();

// When destroyed, closes the autocast blocks that this thread has opened since construction and has
// not closed: those of a method that raised.
class CloseAutocastBlocks {
 public:
  CloseAutocastBlocks();
  ~CloseAutocastBlocks();
  CloseAutocastBlocks(const CloseAutocastBlocks&) = delete;
  CloseAutocastBlocks& operator=(const CloseAutocastBlocks&) = delete;

 private:
  size_t open_;  // number of blocks at construction
};

}  // namespace aten_recompute
