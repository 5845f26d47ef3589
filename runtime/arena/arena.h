// One piece of memory whose blocks lie at planned offsets, and the arenas of the process.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace aten_recompute {

// Memory from the system, of which blocks are taken at offsets that the caller chooses. What is in
// use is never handed out a second time, whatever the caller planned. Thread-safe.
class Arena {
 public:
  // Returns nullptr where the system has no such piece of memory.
  static std::shared_ptr<Arena> make(int64_t bytes);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Returns the arena in which the address lies; nullptr if there is none.
  static std::shared_ptr<Arena> containing(const void* address);

  // Returns the address of `offset`, and marks `bytes` from there as in use. Returns nullptr if a
  // part of them is in use already or lies outside of the arena.
  void* take(int64_t offset, int64_t bytes);
  // Ends the use of a block, which take() returned. Returns its size in bytes.
  int64_t give_back(const void* block);

  int64_t bytes() const { return bytes_; }
  int64_t used_bytes() const;
  // Gives the pages that no block uses back to the system. Their contents are lost.
  void release_pages();
  // Gives all memory back to the system: what no block uses at once, the rest with the last block.
  void retire();

 private:
  struct Used {
    int64_t begin;  // offsets
    int64_t end;
  };

  Arena() = default;
  // Returns the first block that begins at `offset` or later. Needs mutex_ to be held.
  std::vector<Used>::iterator first_from(int64_t offset);

  std::byte* base_ = nullptr;
  int64_t bytes_ = 0;
  mutable std::mutex mutex_;
  std::vector<Used> used_;  // sorted, without overlaps
  int64_t used_bytes_ = 0;
  bool is_retired_ = false;
};

// The arenas that no step uses at present. All lowered modules of the process share them, so
// modules that train one after the other need the memory of the largest only. Thread-safe.
class ArenaPool {
 public:
  static ArenaPool& instance();

  // Returns an arena of at least this size, which is the caller's until give_back(). Returns
  // nullptr where the system has no such piece of memory.
  std::shared_ptr<Arena> acquire(int64_t bytes);
  // Takes an arena back. With `release`, its memory goes back to the system. Allocates nothing,
  // because destructors call it.
  void give_back(std::shared_ptr<Arena> arena, bool release);
  // Gives the memory of all arenas in the pool back to the system.
  void clear();

 private:
  // Enough for modules that take part in one step, few enough for what a hundred calls that were
  // alive at once leave behind.
  static constexpr size_t kMostFree = 4;

  ArenaPool() { free_.reserve(kMostFree + 1); }

  std::mutex mutex_;
  std::vector<std::shared_ptr<Arena>> free_;  // the most recently used is the last
};

}  // namespace aten_recompute
