#include "runtime/arena/arena_allocator.h"

#include <c10/core/Allocator.h>

#include <limits>

#include "runtime/arena/scratch_memory.h"
#include "runtime/arena/step_arena.h"

namespace aten_recompute {
namespace {

class ArenaAllocator final : public c10::Allocator {
 public:
  explicit ArenaAllocator(c10::Allocator* wrapped) : wrapped_(wrapped) {
    wrapped_deleter = wrapped->raw_deleter();
  }

  c10::DataPtr allocate(size_t bytes) override {
    void* block = AllocationScope::allocate(bytes);
    if (block == nullptr)
      block = ScratchMemory::allocate(static_cast<int64_t>(bytes));
    if (block != nullptr)
      return {block, block, &release, c10::Device(c10::DeviceType::CPU)};
    return wrapped_->allocate(bytes);
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

 private:
  // Deleters are plain functions, hence the static member.
  static c10::DeleterFnPtr wrapped_deleter;

  static void release(void* block) {
    if (block != nullptr && !free_block(block))
      wrapped_deleter(block);
  }

  c10::Allocator* wrapped_;
};

c10::DeleterFnPtr ArenaAllocator::wrapped_deleter = nullptr;

}  // namespace

void install_arena_allocator() {
  static const bool is_done [[maybe_unused]] = [] {
    auto* const present = c10::GetAllocator(c10::DeviceType::CPU);
    if (present->raw_deleter() == nullptr)
      return false;
    // Never destroyed, because its blocks may outlive everything else in this library.
    c10::SetAllocator(c10::DeviceType::CPU, new ArenaAllocator(present),
                      std::numeric_limits<uint8_t>::max());
    return true;  // NOLINT(clang-analyzer-cplusplus.NewDeleteLeaks)
  }();
}

}  // namespace aten_recompute
