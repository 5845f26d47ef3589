// A list of entries of which the one that was used least recently is dropped when there are too
// many.
#pragma once

#include <algorithm>
#include <cstddef>
#include <list>
#include <optional>
#include <utility>

namespace aten_recompute {

// Entries are compared by a predicate, as keys here are cheap to compare and expensive to hash; so
// a search takes time in proportion to their number. References stay valid until the entry is
// dropped. Not thread-safe.
template <class Entry>
class LruCache {
 public:
  // `max_size` is at least 1.
  explicit LruCache(size_t max_size) : max_size_(max_size) {}

  // Returns the most recently used entry for which `matches(entry)` holds, and marks it as used
  // now; nullptr where there is none.
  template <class Predicate>
  Entry* find(const Predicate& matches) {
    const auto found = std::find_if(entries_.begin(), entries_.end(), matches);
    if (found == entries_.end())
      return nullptr;
    entries_.splice(entries_.begin(), entries_, found);
    return &entries_.front();
  }

  // Adds an entry as the most recently used one. Where there would be more than `max_size`, the
  // least recently used one is dropped, and returned.
  std::optional<Entry> insert(Entry entry) {
    entries_.push_front(std::move(entry));
    if (entries_.size() <= max_size_)
      return std::nullopt;
    std::optional<Entry> dropped = std::move(entries_.back());
    entries_.pop_back();
    return dropped;
  }

  template <class Predicate>
  void erase_if(const Predicate& matches) {
    entries_.remove_if(matches);
  }

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }

  // Iterators visit the entries from the most to the least recently used.
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  size_t max_size_;
  std::list<Entry> entries_;
};

}  // namespace aten_recompute
