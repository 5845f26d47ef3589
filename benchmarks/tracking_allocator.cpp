// A CPU allocator that counts: it wraps LibTorch's own, keeps the number of live bytes and their
// peak, and on request writes down how the number moved over time. Every tensor made on the CPU
// passes through it, whoever makes it (eager PyTorch, TorchScript, a compiled region), so that
// peers are measured alike.
//
// Bytes are those that were asked for. What the C library rounds up or keeps back is not counted.
//
// Each block is remembered by its address. A block made before the allocator was installed is not
// in the table and is freed without being counted; a block made by it and freed after it was taken
// away is still found and counted. So installing it and taking it away is safe at any moment when
// no other thread is about to allocate.
//
// On request it fails: the n-th request throws the error of LibTorch's own allocator, so that tests
// can see what a step does without memory.
//
// The functions at the end are plain C, for ctypes. None of them throws.

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>
#include <unordered_map>
#include <vector>

namespace {

struct Sample {
  std::int64_t time_ns;  // steady clock, origin arbitrary
  std::int64_t live_bytes;
};

std::int64_t now_ns() {
  using namespace std::chrono;
  return duration_cast<nanoseconds>(steady_clock::now().time_since_epoch()).count();
}

// The counters. One mutex guards all of them: tensors are rarely allocated by two threads at the
// same moment, and an uncontended lock costs a few ten nanoseconds beside a call to malloc for what
// is mostly megabytes.
class Ledger {
 public:
  void record_allocation(void* block, std::size_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    size_of_.emplace(block, static_cast<std::int64_t>(bytes));
    move_live(static_cast<std::int64_t>(bytes));
  }

  // Must run before the memory goes back: afterward another thread may already be given the same
  // address.
  void record_release(void* block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = size_of_.find(block);
    if (found == size_of_.end()) {
      return;
    }
    const std::int64_t bytes = found->second;
    size_of_.erase(found);
    move_live(-bytes);
  }

  std::int64_t live_bytes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return live_bytes_;
  }

  std::int64_t peak_bytes() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return peak_bytes_;
  }

  void reset_peak() {
    const std::lock_guard<std::mutex> lock(mutex_);
    peak_bytes_ = live_bytes_;
  }

  void start_timeline(std::size_t capacity) {
    // Filled once here, so that recording neither allocates nor touches fresh pages.
    std::vector<Sample> samples(capacity);
    const std::lock_guard<std::mutex> lock(mutex_);
    samples_.swap(samples);
    sample_count_ = 0;
    dropped_count_ = 0;
    recording_ = true;
    append_sample();
  }

  void stop_timeline() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (recording_) {
      append_sample();
    }
    recording_ = false;
  }

  std::size_t read_timeline(std::int64_t* time_ns, std::int64_t* live_bytes, std::size_t capacity) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const std::size_t count = sample_count_ < capacity ? sample_count_ : capacity;
    for (std::size_t i = 0; i < count; ++i) {
      time_ns[i] = samples_[i].time_ns;
      live_bytes[i] = samples_[i].live_bytes;
    }
    return count;
  }

  std::size_t sample_count() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return sample_count_;
  }

  std::size_t dropped_count() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return dropped_count_;
  }

 private:
  void move_live(std::int64_t bytes) {
    live_bytes_ += bytes;
    if (live_bytes_ > peak_bytes_) {
      peak_bytes_ = live_bytes_;
    }
    if (recording_) {
      append_sample();
    }
  }

  void append_sample() {
    if (sample_count_ == samples_.size()) {
      ++dropped_count_;
      return;
    }
    samples_[sample_count_++] = {now_ns(), live_bytes_};
  }

  std::mutex mutex_;
  std::unordered_map<void*, std::int64_t> size_of_;
  std::int64_t live_bytes_ = 0;
  std::int64_t peak_bytes_ = 0;
  std::vector<Sample> samples_;
  std::size_t sample_count_ = 0;
  std::size_t dropped_count_ = 0;
  bool recording_ = false;
};

// Never destroyed: tensors held by other static objects are freed after this library's would have
// been.
Ledger& ledger() {
  static auto* const instance = new Ledger;
  return *instance;
}

// What was installed when the tracker came, and how it frees. Deleters are plain functions, hence
// the globals.
c10::Allocator* wrapped_allocator = nullptr;
c10::DeleterFnPtr wrapped_deleter = nullptr;

void release(void* block) {
  if (block == nullptr) {
    return;
  }
  ledger().record_release(block);
  wrapped_deleter(block);
}

// Which requests fail, by their numbers since this was last set.
class Failures {
 public:
  void set(std::int64_t first, bool and_later) {
    first_ = 0;
    requests_ = 0;
    and_later_ = and_later;
    first_ = first;
  }

  // Throws what LibTorch's allocator throws where the system has no memory.
  void count_request(std::size_t bytes) {
    const auto number = ++requests_;
    const auto first = first_.load();
    if (first > 0 && (number == first || (and_later_ && number > first)))
      TORCH_CHECK(false, "[enforce fail at tracking_allocator.cpp] DefaultCPUAllocator: can't ",
                  "allocate memory: you tried to allocate ", bytes, " bytes.");
  }

  std::int64_t requests() const { return requests_; }

 private:
  std::atomic<std::int64_t> first_{0};  // 0: none
  std::atomic<std::int64_t> requests_{0};
  std::atomic<bool> and_later_{false};
};

Failures failures;

class TrackingAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t bytes) override {
    if (bytes > 0)
      failures.count_request(bytes);
    void* const block = wrapped_allocator->raw_allocate(bytes);
    if (block != nullptr) {
      ledger().record_allocation(block, bytes);
    }
    return {block, block, &release, c10::Device(c10::DeviceType::CPU)};
  }

  c10::DeleterFnPtr raw_deleter() const override { return &release; }

  void copy_data(void* destination, const void* source, std::size_t count) const override {
    default_copy_data(destination, source, count);
  }
};

TrackingAllocator& tracking_allocator() {
  static auto* const instance = new TrackingAllocator;
  return *instance;
}

bool installed() {
  return c10::GetAllocator(c10::DeviceType::CPU) == &tracking_allocator();
}

// SetAllocator heeds only an equal or a higher priority than the last one, so both directions use
// the highest.
constexpr std::uint8_t kPriority = std::numeric_limits<std::uint8_t>::max();

}  // namespace

extern "C" {

// Installs the tracker. 0: installed, or already was. 1: the present allocator frees through a
// context of its own and cannot be wrapped.
int aten_recompute_tracker_install() {
  if (installed()) {
    return 0;
  }
  c10::Allocator* const present = c10::GetAllocator(c10::DeviceType::CPU);
  // Blocks of the tracker may still be alive from an earlier installation; they go back to where
  // they came from.
  if (present->raw_deleter() == nullptr ||
      (wrapped_allocator != nullptr && wrapped_allocator != present)) {
    return 1;
  }
  wrapped_allocator = present;
  wrapped_deleter = present->raw_deleter();
  c10::SetAllocator(c10::DeviceType::CPU, &tracking_allocator(), kPriority);
  return 0;
}

// Puts back the allocator that was wrapped. Blocks that are still alive go on being counted until
// they are freed.
void aten_recompute_tracker_uninstall() {
  if (installed()) {
    c10::SetAllocator(c10::DeviceType::CPU, wrapped_allocator, kPriority);
  }
}

int aten_recompute_tracker_installed() {
  return installed() ? 1 : 0;
}

// Bytes allocated since installation and not freed yet.
std::int64_t aten_recompute_tracker_live_bytes() {
  return ledger().live_bytes();
}

// The greatest live_bytes since installation or the last reset_peak.
std::int64_t aten_recompute_tracker_peak_bytes() {
  return ledger().peak_bytes();
}

void aten_recompute_tracker_reset_peak() {
  ledger().reset_peak();
}

// Lets the n-th request from now on fail, 1 being the next one, and with `and_later` all that come
// after it. 0: no request fails. Requests for no bytes are not counted. Counting begins anew.
void aten_recompute_tracker_fail(std::int64_t n, int and_later) {
  failures.set(n, and_later != 0);
}

// How many requests there were since the last call of aten_recompute_tracker_fail.
std::int64_t aten_recompute_tracker_requests() {
  return failures.requests();
}

// Starts a timeline of at most `capacity` samples (16 bytes each, allocated here): one at once, one
// after each change, one at timeline_stop. Replaces an earlier timeline. 0: started. 1: not enough
// memory.
int aten_recompute_tracker_timeline_start(std::size_t capacity) {
  try {
    ledger().start_timeline(capacity);
    return 0;
  } catch (...) {
    return 1;
  }
}

void aten_recompute_tracker_timeline_stop() {
  ledger().stop_timeline();
}

// How many samples the last timeline has, and how many did not fit.
std::size_t aten_recompute_tracker_timeline_size() {
  return ledger().sample_count();
}

std::size_t aten_recompute_tracker_timeline_dropped() {
  return ledger().dropped_count();
}

// Copies up to `capacity` samples, oldest first, and returns how many.
std::size_t aten_recompute_tracker_timeline_read(std::int64_t* time_ns, std::int64_t* live_bytes,
                                                 std::size_t capacity) {
  return ledger().read_timeline(time_ns, live_bytes, capacity);
}

}  // extern "C"
