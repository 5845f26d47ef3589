#include "runtime/arena/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <shared_mutex>

#include "common/environment.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

namespace aten_recompute {
namespace {

// The size of a huge page in bytes: Linux maps it with one entry of the page table.
constexpr int64_t kHugePage = int64_t{2} << 20;

int64_t rounded_up(int64_t bytes, int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

int64_t page_bytes() {
  static const int64_t bytes = sysconf(_SC_PAGESIZE);
  return bytes;
}

// With RECOMPUTE_ARENA_POISON=1, memory that is handed out or taken back is filled with bytes
// that are NaN as a number and an invalid index, so that a wrong use shows in results.
bool poisons() {
  static const bool is_on = environment_is("RECOMPUTE_ARENA_POISON", "1");
  return is_on;
}

void poison(std::byte* begin, int64_t bytes) {
  constexpr int kPoison = 0xFF;
  std::memset(begin, kPoison, static_cast<size_t>(bytes));
}

// All arenas, by address. They are few, and are looked up for every block that is freed.
struct Registry {
  struct Entry {
    const std::byte* begin;
    const std::byte* end;
    std::shared_ptr<Arena> arena;
  };
  std::shared_mutex mutex;
  std::vector<Entry> entries;

  // Never destroyed: tensors in static objects are freed late.
  static Registry& instance() {
    static auto* const instance = new Registry;
    return *instance;
  }

  void remove(const std::byte* begin) {
    // Destroyed after the lock is released.
    std::shared_ptr<Arena> removed;
    const std::unique_lock<std::shared_mutex> lock(mutex);
    const auto found = std::find_if(entries.begin(), entries.end(),
                                    [&](const Entry& entry) { return entry.begin == begin; });
    if (found == entries.end())
      return;
    removed = std::move(found->arena);
    entries.erase(found);
  }
};

}  // namespace

std::shared_ptr<Arena> Arena::make(int64_t bytes) {
  // Made before its memory, which it gives back whatever fails from then on.
  auto arena = std::shared_ptr<Arena>(new Arena);
  bytes = rounded_up(bytes, page_bytes());
  // Reserved with a margin, of which all but the aligned part goes back at once.
  const auto reserved = static_cast<size_t>(bytes + kHugePage);
  void* const mapped =
      mmap(nullptr, reserved, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED)
    return nullptr;
  const auto begin = reinterpret_cast<int64_t>(mapped);
  const auto aligned = rounded_up(begin, kHugePage);
  if (aligned > begin)
    munmap(mapped, static_cast<size_t>(aligned - begin));
  if (const auto rest = begin + kHugePage - aligned; rest > 0)
    munmap(static_cast<std::byte*>(mapped) + (aligned - begin) + bytes, static_cast<size_t>(rest));
  auto* const base = static_cast<std::byte*>(mapped) + (aligned - begin);
  arena->base_ = base;
  arena->bytes_ = bytes;
  // This is a hint, which saves page faults, and misses of the address cache in kernels.
  madvise(base, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  ASAN_POISON_MEMORY_REGION(base, static_cast<size_t>(bytes));
  auto& registry = Registry::instance();
  const std::unique_lock<std::shared_mutex> lock(registry.mutex);
  registry.entries.push_back({base, base + bytes, arena});
  return arena;
}

Arena::~Arena() {
  if (base_ == nullptr)
    return;
  ASAN_UNPOISON_MEMORY_REGION(base_, static_cast<size_t>(bytes_));
  munmap(base_, static_cast<size_t>(bytes_));
}

std::shared_ptr<Arena> Arena::containing(const void* address) {
  const auto* const byte = static_cast<const std::byte*>(address);
  auto& registry = Registry::instance();
  const std::shared_lock<std::shared_mutex> lock(registry.mutex);
  for (const auto& entry : registry.entries) {
    if (entry.begin <= byte && byte < entry.end)
      return entry.arena;
  }
  return nullptr;
}

void* Arena::take(int64_t offset, int64_t bytes) {
  const auto end = offset + bytes;
  if (offset < 0 || bytes <= 0 || end > bytes_)
    return nullptr;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto next = first_from(offset);
    if (next != used_.end() && next->begin < end)
      return nullptr;
    if (next != used_.begin() && std::prev(next)->end > offset)
      return nullptr;
    used_.insert(next, {offset, end});
    used_bytes_ += bytes;
  }
  ASAN_UNPOISON_MEMORY_REGION(base_ + offset, static_cast<size_t>(bytes));
  if (poisons())
    poison(base_ + offset, bytes);
  return base_ + offset;
}

int64_t Arena::give_back(const void* block) {
  const auto offset = static_cast<const std::byte*>(block) - base_;
  bool is_done = false;
  int64_t bytes = 0;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = first_from(offset);
    if (found == used_.end() || found->begin != offset)
      return 0;
    bytes = found->end - found->begin;
    if (poisons())
      poison(base_ + offset, bytes);
    ASAN_POISON_MEMORY_REGION(base_ + offset, static_cast<size_t>(bytes));
    used_.erase(found);
    used_bytes_ -= bytes;
    is_done = is_retired_ && used_.empty();
  }
  if (is_done)
    retire();
  return bytes;
}

std::vector<Arena::Used>::iterator Arena::first_from(int64_t offset) {
  return std::lower_bound(used_.begin(), used_.end(), offset,
                          [](const Used& used, int64_t begin) { return used.begin < begin; });
}

int64_t Arena::used_bytes() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return used_bytes_;
}

void Arena::release_pages() {
  const std::lock_guard<std::mutex> lock(mutex_);
  int64_t begin = 0;
  const auto release_to = [&](int64_t end) {
    end = end / page_bytes() * page_bytes();
    if (end > begin)
      madvise(base_ + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
  };
  for (const auto& used : used_) {
    release_to(used.begin);
    begin = rounded_up(used.end, page_bytes());
  }
  release_to(bytes_);
}

void Arena::retire() {
  // A step that is over may hold the arena for a while, so its destructor comes too late for that.
  release_pages();
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_retired_ = true;
    if (!used_.empty())
      return;
  }
  Registry::instance().remove(base_);
}

ArenaPool& ArenaPool::instance() {
  static auto* const instance = new ArenaPool;
  return *instance;
}

std::shared_ptr<Arena> ArenaPool::acquire(int64_t bytes) {
  // An arena in which old blocks fill more than this share is of little use to a new step.
  constexpr int64_t kLargestUsedShare = 8;
  std::shared_ptr<Arena> too_small;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const auto& arena = **it;
      if (arena.bytes() < bytes || arena.used_bytes() > arena.bytes() / kLargestUsedShare)
        continue;
      if (best == free_.end() || arena.bytes() <= (*best)->bytes())
        best = it;
    }
    if (best != free_.end()) {
      auto arena = std::move(*best);
      free_.erase(best);
      return arena;
    }
    // It grows: a step that needs more comes in place of one that needed less.
    if (!free_.empty()) {
      too_small = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (too_small != nullptr)
    too_small->retire();
  too_small = nullptr;
  return Arena::make(bytes);
}

void ArenaPool::give_back(std::shared_ptr<Arena> arena, bool release) {
  if (release) {
    arena->retire();
    return;
  }
  std::shared_ptr<Arena> surplus;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(std::move(arena));
    if (free_.size() > kMostFree) {
      surplus = std::move(free_.front());
      free_.erase(free_.begin());
    }
  }
  if (surplus != nullptr)
    surplus->retire();
}

void ArenaPool::clear() {
  while (true) {
    std::shared_ptr<Arena> arena;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (free_.empty())
        return;
      arena = std::move(free_.back());
      free_.pop_back();
    }
    arena->retire();
  }
}

}  // namespace aten_recompute
