// Autocast at run time: whether it is on, and the operators at both ends of its blocks.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarType.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace aten_recompute {

// Autocast's settings on a thread: what the dispatcher casts operands to before an operator runs.
// Only the CPU and CUDA devices count.
struct AutocastState {
  // Per device, CPU and CUDA.
  std::array<bool, 2> on{};
  std::array<c10::ScalarType, 2> types{c10::kBFloat16, c10::kHalf};  // of lower precision
  bool is_cache_on = true;   // casts of parameters are made once and used again
  bool is_in_block = false;  // so the end of a block within it does not empty the cache

  bool is_on() const { return on[0] || on[1]; }
  // Neither is known for other devices: off, and c10::ScalarType::Undefined.
  bool is_on(c10::DeviceType device) const;
  c10::ScalarType type(c10::DeviceType device) const;
  // NOLINTNEXTLINE(modernize-use-nullptr): the check takes the 0 of a comparison for a pointer
  auto operator<=>(const AutocastState&) const = default;

  // Changes the settings as the beginning of a block of torch.autocast does.
  void enter(c10::DeviceType device, bool enabled, c10::ScalarType type,
             std::optional<bool> cache_enabled);

  // Returns the settings of this thread.
  static AutocastState current();

  // Returns the settings as a graph is compiled for them. Where it neither has blocks of autocast
  // nor asks for it, those of threads without autocast are all equal.
  AutocastState for_graph(bool depends_on_autocast) const {
    return depends_on_autocast || is_on() ? *this : AutocastState();
  }
};

// Makes the settings those of this thread while it exists.
class WithAutocast {
 public:
  explicit WithAutocast(const AutocastState& state);
  ~WithAutocast();
  WithAutocast(const WithAutocast&) = delete;
  WithAutocast& operator=(const WithAutocast&) = delete;

 private:
  AutocastState before_;
};

// Returns whether autocast is on, for the CPU or for CUDA devices.
bool autocast_enabled();

// Returns a number that differs after autocast's cache of casts has been emptied, as at the end of
// the outermost block. The cache needs to be on. Thread-safe.
uint64_t generation_of_cast_cache();

// While it exists, the dispatcher casts nothing on this thread: for graphs that have the casts as
// operators.
class WithoutAutocast {
 public:
  WithoutAutocast() : keys_(c10::autocast_dispatch_keyset) {}

 private:
  c10::impl::ExcludeDispatchKeyGuard keys_;
};

// While it exists, autocast keeps no casts: a cast that is made without gradients, as while a
// method is compiled, would be used again by the call, which needs its gradient.
class WithoutAutocastCache {
 public:
  WithoutAutocastCache();
  ~WithoutAutocastCache();
  WithoutAutocastCache(const WithoutAutocastCache&) = delete;
  WithoutAutocastCache& operator=(const WithoutAutocastCache&) = delete;

 private:
  bool was_on_;
};

// Registers aten_recompute::enter_autocast(str device, bool enabled, int dtype, bool?
// cache_enabled) and aten_recompute::exit_autocast(), which do what torch.autocast does at the ends
// of its block. The latter throws c10::Error where no block is open. Only the first call registers
// anything.
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
