#include "backend/memory/peak_watch.h"

#include <ATen/record_function.h>
#include <c10/core/Allocator.h>
#include <torch/csrc/profiler/combined_traceback.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/call_context.h"

namespace aten_recompute {
namespace {

constexpr size_t kShown = 10;
constexpr int64_t kLeastShareOfLimit = 512;
constexpr double kGrowthBetweenNotes = 1.005;

// What runs on this thread, from the outside in.
struct Running {
  std::string name;
  bool is_operator = false;
};

std::vector<Running>& running() {
  auto& stack = CallContext::current().running_operators;
  if (stack == nullptr)
    stack = std::make_shared<std::vector<Running>>();
  return *static_cast<std::vector<Running>*>(stack.get());
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  running().push_back({function.name(), function.scope() == at::RecordScope::FUNCTION});
  return nullptr;
}

void leave(const at::RecordFunction& /*function*/, at::ObserverContext* /*context*/) {
  if (!running().empty())
    running().pop_back();
}

struct Origin {
  std::string operation;
  std::string range;
  std::shared_ptr<torch::CapturedTraceback> traceback;
};

// The operator that was called, not those that it calls in turn.
Origin origin_of_allocation() {
  Origin origin;
  for (const auto& each : running()) {
    if (!each.is_operator) {
      origin.range = each.name;
      origin.operation.clear();
    } else if (origin.operation.empty()) {
      origin.operation = each.name;
    }
  }
  origin.traceback =
      torch::CapturedTraceback::gather(/*python=*/true, /*script=*/true, /*cpp=*/false);
  return origin;
}

struct Noted {
  int64_t bytes = 0;
  std::shared_ptr<const Origin> origin;
};

// Wraps the CPU's allocator. It is never destroyed, because its blocks may outlive everything else
// in this library.
class PeakAllocator final : public c10::Allocator {
 public:
  static PeakAllocator& instance() {
    static auto* const instance = new PeakAllocator;
    return *instance;
  }

  bool start(int64_t limit_bytes) {
    auto* present = c10::GetAllocator(c10::kCPU);
    const bool is_below = present != this && leads_here(present);
    if (present != this && !is_below && present->raw_deleter() == nullptr)
      return false;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (is_on_)
      return false;
    if (present != this && !is_below) {
      wrapped_ = present;
      c10::SetAllocator(c10::kCPU, this, kPriority);
    }
    limit_ = limit_bytes;
    least_ = std::max<int64_t>(limit_bytes / kLeastShareOfLimit, 1);
    alive_ = peak_ = noted_at_ = 0;
    noted_.clear();
    ++watch_;
    is_on_ = true;
    return true;
  }

  // Returns whether there was a watch.
  bool stop() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!is_on_)
      return false;
    is_on_ = false;
    // Another wrapper may lie above this one; then this one stays, and only passes on.
    if (c10::GetAllocator(c10::kCPU) == this)
      c10::SetAllocator(c10::kCPU, wrapped_, kPriority);
    for (auto& [memory, block] : blocks_)
      block.origin = nullptr;
    return true;
  }

  c10::DataPtr allocate(size_t bytes) override {
    CallContext::current().reached_peak_watch = true;
    auto* wrapped = wrapped_.load();
    auto* memory = wrapped->raw_allocate(bytes);
    if (memory == nullptr)
      return {nullptr, nullptr, &release, c10::Device(c10::kCPU)};
    try {
      add(memory, wrapped->raw_deleter(), static_cast<int64_t>(bytes));
    } catch (const std::exception&) {
      release(memory);
      throw;
    }
    return {memory, memory, &release, c10::Device(c10::kCPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t count) const override {
    default_copy_data(to, from, count);
  }

  int64_t peak() const { return peak_; }
  int64_t noted_at() const { return noted_at_; }
  std::vector<Noted> take_noted() { return std::exchange(noted_, {}); }

 private:
  struct Block {
    c10::DeleterFnPtr deleter = nullptr;
    int64_t bytes = 0;
    uint64_t watch = 0;  // number of the watch that counts it; 0 if none does
    std::shared_ptr<const Origin> origin;
  };

  // Among allocators with the highest priority, c10::SetAllocator uses the one set last.
  static constexpr uint8_t kPriority = std::numeric_limits<uint8_t>::max();

  // Returns whether the allocator is a wrapper around this one. Wrapping it again would make
  // allocations recurse without end.
  static bool leads_here(c10::Allocator* allocator) {
    if (allocator->raw_deleter() == nullptr)
      return false;
    CallContext::current().reached_peak_watch = false;
    allocator->raw_deleter()(allocator->raw_allocate(1));
    return CallContext::current().reached_peak_watch;
  }

  void add(void* memory, c10::DeleterFnPtr deleter, int64_t size) {
    // Not under the lock: it waits for the lock of Python.
    std::shared_ptr<const Origin> origin;
    if (is_on_ && size >= least_)
      origin = std::make_shared<const Origin>(origin_of_allocation());
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_[memory] = {deleter, size, is_on_ ? watch_ : 0, std::move(origin)};
    if (is_on_) {
      alive_ += size;
      peak_ = std::max(peak_, alive_);
      if (alive_ > limit_ &&
          static_cast<double>(alive_) > kGrowthBetweenNotes * static_cast<double>(noted_at_))
        note();
    }
  }

  // Notes the largest blocks that are alive.
  void note() {
    std::vector<Noted> alive;
    for (const auto& [memory, block] : blocks_) {
      if (block.watch == watch_ && block.origin != nullptr)
        alive.push_back({block.bytes, block.origin});
    }
    const auto shown = std::min(kShown, alive.size());
    std::partial_sort(alive.begin(), alive.begin() + static_cast<std::ptrdiff_t>(shown),
                      alive.end(), [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
    alive.resize(shown);
    noted_ = std::move(alive);
    noted_at_ = alive_;
  }

  static void release(void* memory) {
    if (memory == nullptr)
      return;
    auto& self = instance();
    auto deleter = self.wrapped_.load()->raw_deleter();
    std::shared_ptr<const Origin> origin;  // freed without the lock
    {
      const std::lock_guard<std::mutex> lock(self.mutex_);
      // oneDNN frees memory with the present allocator, whichever one it came from.
      if (const auto found = self.blocks_.find(memory); found != self.blocks_.end()) {
        auto& block = found->second;
        deleter = block.deleter;
        origin = std::move(block.origin);
        if (self.is_on_ && block.watch == self.watch_)
          self.alive_ -= block.bytes;
        self.blocks_.erase(found);
      }
    }
    deleter(memory);
  }

  std::mutex mutex_;
  std::atomic<c10::Allocator*> wrapped_{nullptr};
  std::atomic<bool> is_on_{false};
  std::atomic<int64_t> least_{1};
  int64_t limit_ = 0;
  uint64_t watch_ = 0;  // number of the present or last watch
  std::unordered_map<const void*, Block> blocks_;
  int64_t alive_ = 0;
  int64_t peak_ = 0;
  std::vector<Noted> noted_;
  int64_t noted_at_ = 0;
};

at::CallbackHandle& callback() {
  static at::CallbackHandle handle = 0;
  return handle;
}

// Returns the lines of the program of each block, the innermost first.
std::vector<nlohmann::json> frames_of(const std::vector<Noted>& noted) {
  std::vector<torch::CapturedTraceback*> tracebacks;
  for (const auto& each : noted)
    tracebacks.push_back(each.origin->traceback.get());
  const auto symbolized = torch::symbolize(tracebacks);
  std::vector<nlohmann::json> frames;
  for (const auto& traceback : symbolized.tracebacks) {
    auto lines = nlohmann::json::array();
    for (auto index : traceback) {
      const auto& frame = symbolized.all_frames[index];
      lines.push_back({frame.filename, frame.lineno, frame.funcname});
    }
    frames.push_back(std::move(lines));
  }
  return frames;
}

}  // namespace

bool start_peak_watch(int64_t limit_bytes) {
  if (!PeakAllocator::instance().start(limit_bytes))
    return false;
  running().clear();
  callback() = at::addGlobalCallback(
      at::RecordFunctionCallback(&enter, &leave)
          .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION,
                   at::RecordScope::USER_SCOPE}));
  return true;
}

std::string stop_peak_watch() {
  auto& allocator = PeakAllocator::instance();
  if (!allocator.stop())
    throw std::logic_error("stop_peak_watch: there is no watch");
  at::removeCallback(callback());
  const auto noted = allocator.take_noted();
  const auto frames = frames_of(noted);
  auto blocks = nlohmann::json::array();
  for (size_t i = 0; i < noted.size(); ++i) {
    blocks.push_back({{"bytes", noted[i].bytes},
                      {"operator", noted[i].origin->operation},
                      {"range", noted[i].origin->range},
                      {"frames", frames[i]}});
  }
  return nlohmann::json{
      {"peak_bytes", allocator.peak()}, {"at_bytes", allocator.noted_at()}, {"blocks", blocks}}
      .dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace aten_recompute
