#include "runtime/arena/scratch_memory.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <new>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/arena/system_memory.h"
#include "runtime/arena/thread_memory.h"

namespace aten_recompute {

// The blocks of one instance. Thread-safe, because a block may be freed on any thread.
class ScratchMemory::Pool : public std::enable_shared_from_this<Pool> {
 public:
  struct Block {
    void* memory = nullptr;
    int64_t bytes = 0;
  };

  // Returns a block of at least `bytes` bytes; one without memory where the system has none. Throws
  // LimitReached.
  Block take(int64_t bytes) {
    // A block that is larger by more than this part of the request is not used for it.
    constexpr int64_t kLargestWaste = 8;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (bytes > most_bytes_ - used_bytes_)
      throw LimitReached();
    make_room_for_free_blocks();
    auto best = free_.end();
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      const bool fits = it->bytes >= bytes && it->bytes <= bytes + bytes / kLargestWaste;
      if (fits && (best == free_.end() || it->bytes < best->bytes))
        best = it;
    }
    Block block;
    if (best != free_.end()) {
      block = *best;
      free_.erase(best);
      free_bytes_ -= block.bytes;
    } else {
      shrink_to(std::max<int64_t>(0, most_used_bytes_ - used_bytes_ - bytes));
      block = {map_block(bytes), bytes};
      if (block.memory == nullptr) {
        shrink_to(0);
        block.memory = map_block(bytes);
      }
      if (block.memory == nullptr)
        return block;
    }
    ++num_used_;
    used_bytes_ += block.bytes;
    most_used_bytes_ = std::max(most_used_bytes_, used_bytes_);
    return block;
  }

  // Allocates nothing, because blocks are freed in destructors.
  void give_back(Block block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    --num_used_;
    used_bytes_ -= block.bytes;
    free_bytes_ += block.bytes;
    free_.push_back(block);
    if (is_closed_)
      shrink_to(0);
  }

  // Sets how many bytes may be in use, and returns how many it was before.
  int64_t limit_to(int64_t bytes) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(most_bytes_, bytes);
  }

  void release_free_blocks() {
    const std::lock_guard<std::mutex> lock(mutex_);
    shrink_to(0);
  }

  void close() {
    const std::lock_guard<std::mutex> lock(mutex_);
    is_closed_ = true;
    shrink_to(0);
  }

 private:
  // Gives free blocks back until they have at most `bytes` bytes, the longest unused first. Needs
  // mutex_ to be held.
  void shrink_to(int64_t bytes) {
    auto end = free_.begin();
    for (; end != free_.end() && free_bytes_ > bytes; ++end) {
      free_bytes_ -= end->bytes;
      unmap_block(end->memory, end->bytes);
    }
    free_.erase(free_.begin(), end);
  }

  // Has `free_` hold one block more than there are now, so that each can be given back. Needs
  // mutex_ to be held.
  void make_room_for_free_blocks() {
    const auto most = free_.size() + num_used_ + 1;
    if (most > free_.capacity())
      free_.reserve(2 * most);
  }

  std::mutex mutex_;
  std::vector<Block> free_;  // in the order in which they were freed
  size_t num_used_ = 0;
  int64_t free_bytes_ = 0;
  int64_t used_bytes_ = 0;
  int64_t most_used_bytes_ = 0;
  int64_t most_bytes_ = std::numeric_limits<int64_t>::max();
  bool is_closed_ = false;
};

// All blocks that are in use, by address. Thread-safe.
class ScratchMemory::Blocks {
 public:
  // Never destroyed: tensors in static objects are freed late.
  static Blocks& instance() {
    static auto* const instance = new Blocks;
    return *instance;
  }

  struct Entry {
    std::shared_ptr<Pool> pool;
    Pool::Block block;
    int64_t requested = 0;
  };

  void add(Entry entry) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const void* const address = entry.block.memory;
    entries_[address] = std::move(entry);
    ++count_;
  }

  // Removes a block and returns its entry, which has no pool if there is no such block.
  Entry remove(const void* block) {
    if (count_.load(std::memory_order_relaxed) == 0)
      return {};  // nearly always, and this is asked for every block that is freed
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = entries_.find(block);
    if (found == entries_.end())
      return {};
    auto entry = std::move(found->second);
    entries_.erase(found);
    --count_;
    return entry;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<const void*, Entry> entries_;
  std::atomic<size_t> count_{0};
};

ScratchMemory::ScratchMemory()
    : pool_(std::make_shared<Pool>()), outer_(ThreadMemory::current().scratch) {
  ThreadMemory::current().scratch = pool_.get();
}

ScratchMemory::~ScratchMemory() {
  ThreadMemory::current().scratch = outer_;
  pool_->close();
  give_back_free_heap();
}

void* ScratchMemory::allocate(int64_t bytes) {
  void* const current = ThreadMemory::current().scratch;
  if (current == nullptr || !is_worth_mapping(bytes) || arenas_are_off())
    return nullptr;
  auto* const pool = static_cast<Pool*>(current);
  const auto block = pool->take(bytes);
  if (block.memory == nullptr)
    return nullptr;
  try {
    Blocks::instance().add({pool->shared_from_this(), block, bytes});
  } catch (const std::bad_alloc&) {
    pool->give_back(block);
    return nullptr;
  }
  report_to_profiler(block.memory, bytes);
  return block.memory;
}

ScratchMemory::Limit::Limit(int64_t bytes) {
  void* const current = ThreadMemory::current().scratch;
  if (current == nullptr)
    return;
  auto& pool = *static_cast<Pool*>(current);
  before_ = pool.limit_to(bytes);
  is_binding_ = bytes <= before_;
  if (!is_binding_)
    pool.limit_to(before_);
}

ScratchMemory::Limit::~Limit() {
  if (void* const current = ThreadMemory::current().scratch)
    static_cast<Pool*>(current)->limit_to(before_);
}

void ScratchMemory::release_free_blocks() {
  if (void* const current = ThreadMemory::current().scratch)
    static_cast<Pool*>(current)->release_free_blocks();
}

bool ScratchMemory::free(const void* block) {
  const auto entry = Blocks::instance().remove(block);
  if (entry.pool == nullptr)
    return false;
  report_to_profiler(block, -entry.requested);
  entry.pool->give_back(entry.block);
  return true;
}

}  // namespace aten_recompute
