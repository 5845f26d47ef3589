#include "command/live_memory.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <unordered_map>

namespace aten_recompute::command {
namespace {

// The allocator that is wrapped. Deleters are plain functions, which reach nothing else.
c10::Allocator* wrapped_allocator = nullptr;
c10::DeleterFnPtr wrapped_deleter = nullptr;

struct Counter {
  std::mutex mutex;
  std::unordered_map<void*, int64_t> sizes;
  int64_t alive = 0;
  int64_t peak = 0;
};

// Never destroyed: tensors of other static objects may be freed later.
Counter& counter() {
  static auto* const instance = new Counter;
  return *instance;
}

void release(void* block) {
  if (block == nullptr)
    return;
  {
    // Before the memory goes back: afterward another thread may be given the same address.
    auto& count = counter();
    const std::lock_guard<std::mutex> lock(count.mutex);
    if (const auto found = count.sizes.find(block); found != count.sizes.end()) {
      count.alive -= found->second;
      count.sizes.erase(found);
    }
  }
  wrapped_deleter(block);
}

class CountingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* const block = wrapped_allocator->raw_allocate(bytes);
    if (block != nullptr) {
      auto& count = counter();
      const std::lock_guard<std::mutex> lock(count.mutex);
      count.sizes.emplace(block, static_cast<int64_t>(bytes));
      count.alive += static_cast<int64_t>(bytes);
      count.peak = std::max(count.peak, count.alive);
    }
    return {block, block, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* destination, const void* source, size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

CountingAllocator& counting_allocator() {
  static auto* const instance = new CountingAllocator;
  return *instance;
}

// An allocator takes the place of another one only with at least its priority.
constexpr uint8_t kPriority = std::numeric_limits<uint8_t>::max();

}  // namespace

LiveMemory::LiveMemory() {
  wrapped_allocator = c10::GetAllocator(c10::DeviceType::CPU);
  wrapped_deleter = wrapped_allocator->raw_deleter();
  c10::SetAllocator(c10::DeviceType::CPU, &counting_allocator(), kPriority);
  auto& count = counter();
  const std::lock_guard<std::mutex> lock(count.mutex);
  count.peak = count.alive = 0;
  count.sizes.clear();
}

LiveMemory::~LiveMemory() {
  c10::SetAllocator(c10::DeviceType::CPU, wrapped_allocator, kPriority);
}

int64_t LiveMemory::peak_bytes() const {
  auto& count = counter();
  const std::lock_guard<std::mutex> lock(count.mutex);
  return count.peak;
}

}  // namespace aten_recompute::command
