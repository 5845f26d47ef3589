#include "runtime/memory_watch.h"

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <algorithm>
#include <unordered_map>

namespace aten_recompute {
// A profiler is expected in this slot: Python's torch.autograd.Function asks it whether it is on.
// This one always says that it is off.
struct MemoryCounter : torch::profiler::impl::ProfilerStateBase {
  MemoryCounter()
      : ProfilerStateBase(
            torch::profiler::impl::ProfilerConfig(torch::profiler::impl::ProfilerState::Disabled)) {
  }
  torch::profiler::impl::ActiveProfilerType profilerType() override {
    return torch::profiler::impl::ActiveProfilerType::NONE;
  }
  void reportMemoryUsage(void* pointer, int64_t size, size_t /*total_allocated*/,
                         size_t /*total_reserved*/, c10::Device /*device*/) override {
    if (size > 0) {
      sizes[pointer] = size;
      alive += size;
      peak = std::max(peak, alive);
    } else if (const auto found = sizes.find(pointer); found != sizes.end()) {
      alive -= found->second;
      sizes.erase(found);
    }
  }
  bool memoryProfilingEnabled() const override { return true; }

  std::unordered_map<const void*, int64_t> sizes;
  int64_t alive = 0;
  int64_t peak = 0;
};

struct MemoryWatch::State {
  // A profiler that runs on this thread would take the object in the slot for its own.
  at::DisableRecordFunctionGuard no_callbacks;
  std::shared_ptr<MemoryCounter> counter = std::make_shared<MemoryCounter>();
  c10::DebugInfoGuard guard{c10::DebugInfoKind::PROFILER_STATE, counter};
};

MemoryWatch::MemoryWatch() : state_(std::make_unique<State>()) {}
MemoryWatch::~MemoryWatch() = default;

int64_t MemoryWatch::alive_bytes() const {
  return state_->counter->alive;
}

int64_t MemoryWatch::peak_bytes() const {
  return state_->counter->peak;
}

int64_t MemoryWatch::bytes_at(const void* pointer) const {
  const auto found = state_->counter->sizes.find(pointer);
  return found == state_->counter->sizes.end() ? 0 : found->second;
}

void MemoryWatch::reset() {
  state_->counter->sizes.clear();
  state_->counter->alive = 0;
  state_->counter->peak = 0;
}

}  // namespace aten_recompute
