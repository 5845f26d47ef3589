// Autocast: is it on, and the blocks of it that a method opens itself.
#pragma once

#include <cstddef>

namespace aten_recompute {

// Operators are cast before they run, so that a plan made of the graph as it stands would be of
// another program.
bool autocast_enabled();

// Registers aten_recompute::enter_autocast(str device, bool enabled, int dtype) and
// aten_recompute::exit_autocast(), which do what torch.autocast does at the ends of its block.
void register_autocast_operators();

// Closes the blocks that a method has opened and, because it raised, not closed.
class CloseAutocastBlocks {
 public:
  CloseAutocastBlocks();
  ~CloseAutocastBlocks();
  CloseAutocastBlocks(const CloseAutocastBlocks&) = delete;
  CloseAutocastBlocks& operator=(const CloseAutocastBlocks&) = delete;

 private:
  size_t open_;
};

}  // namespace aten_recompute
