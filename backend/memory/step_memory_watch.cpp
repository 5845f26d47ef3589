#include "backend/memory/step_memory_watch.h"

#include <c10/core/Allocator.h>

#include <algorithm>
#include <limits>
#include <mutex>
#include <new>
#include <thread>
#include <unordered_map>

#include "runtime/call_context.h"

namespace aten_recompute {
namespace {

// Wraps the CPU's allocator and counts what one thread allocates while it is on. It is never
// destroyed, because its blocks may outlive everything else in this library.
class CountingAllocator final : public c10::Allocator {
 public:
  static CountingAllocator& instance() {
    static auto* const instance = new CountingAllocator;
    return *instance;
  }

  // Starts to count the calling thread. Returns false if it counts already, or cannot wrap the
  // present allocator.
  bool install() {
    auto* present = c10::GetAllocator(c10::kCPU);
    if (present != this && (present->raw_deleter() == nullptr || ends_here(present)))
      return false;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_on_)
      return false;
    if (present != this) {
      wrapped_ = present;
      c10::SetAllocator(c10::kCPU, this, kPriority);
    }
    is_on_ = c10::GetAllocator(c10::kCPU) == this;
    thread_ = std::this_thread::get_id();
    ++watch_;
    alive_ = peak_ = 0;
    return is_on_;
  }

  void uninstall() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_on_ = false;
    if (c10::GetAllocator(c10::kCPU) == this)
      c10::SetAllocator(c10::kCPU, wrapped_, kPriority);
  }

  bool is_here() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return is_on_ && std::this_thread::get_id() == thread_;
  }

  c10::DataPtr allocate(size_t bytes) override {
    CallContext::current().asks_for_allocator = true;
    auto* wrapped = wrapped_.load();
    auto* memory = wrapped->raw_allocate(bytes);
    if (memory != nullptr) {
      try {
        note(memory, wrapped->raw_deleter(), static_cast<int64_t>(bytes));
      } catch (const std::bad_alloc&) {
        release(memory);
        throw;
      }
    }
    return {memory, memory, &release, c10::Device(c10::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  int64_t alive() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return alive_;
  }
  int64_t peak() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return peak_;
  }
  void reset_peak() {
    const std::lock_guard<std::mutex> lock(mutex_);
    peak_ = alive_;
  }

 private:
  struct Block {
    c10::DeleterFnPtr deleter;
    int64_t bytes;
    uint64_t watch;  // number of the watch that counts it; 0 if none does
  };

  // Among allocators with the highest priority, c10::SetAllocator uses the one set last.
  static constexpr uint8_t kPriority = std::numeric_limits<uint8_t>::max();

  void note(void* memory, c10::DeleterFnPtr deleter, int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const bool counts = is_on_ && std::this_thread::get_id() == thread_;
    blocks_[memory] = {deleter, bytes, counts ? watch_ : 0};
    if (counts) {
      alive_ += bytes;
      peak_ = std::max(peak_, alive_);
    }
  }

  // Returns whether the allocator is a wrapper around this one. Wrapping it again would make
  // allocations recurse without end.
  static bool ends_here(c10::Allocator* allocator) {
    CallContext::current().asks_for_allocator = false;
    allocator->raw_deleter()(allocator->raw_allocate(1));
    return CallContext::current().asks_for_allocator;
  }

  static void release(void* memory) {
    if (memory == nullptr)
      return;
    auto& self = instance();
    auto deleter = self.wrapped_.load()->raw_deleter();
    {
      const std::lock_guard<std::mutex> lock(self.mutex_);
      // oneDNN frees memory with the present allocator, whichever one it came from.
      if (const auto found = self.blocks_.find(memory); found != self.blocks_.end()) {
        const auto& block = found->second;
        deleter = block.deleter;
        if (self.is_on_ && block.watch == self.watch_)
          self.alive_ -= block.bytes;
        self.blocks_.erase(found);
      }
    }
    deleter(memory);
  }

  mutable std::mutex mutex_;
  std::atomic<c10::Allocator*> wrapped_{nullptr};
  bool is_on_ = false;
  std::thread::id thread_;
  uint64_t watch_ = 0;  // number of the present or last watch
  std::unordered_map<const void*, Block> blocks_;
  int64_t alive_ = 0;
  int64_t peak_ = 0;
};

}  // namespace

std::unique_ptr<StepMemoryWatch> StepMemoryWatch::start() {
  if (!CountingAllocator::instance().install())
    return nullptr;
  return std::unique_ptr<StepMemoryWatch>(new StepMemoryWatch);
}

StepMemoryWatch::StepMemoryWatch() = default;

StepMemoryWatch::~StepMemoryWatch() {
  stop();
}

void StepMemoryWatch::stop() {
  if (!is_stopped_.exchange(true))
    CountingAllocator::instance().uninstall();
}

bool StepMemoryWatch::is_here() const {
  return !is_stopped_ && CountingAllocator::instance().is_here();
}

int64_t StepMemoryWatch::alive_bytes() const {
  return CountingAllocator::instance().alive();
}

int64_t StepMemoryWatch::peak_bytes() const {
  return CountingAllocator::instance().peak();
}

void StepMemoryWatch::reset_peak() {
  CountingAllocator::instance().reset_peak();
}

}  // namespace aten_recompute
