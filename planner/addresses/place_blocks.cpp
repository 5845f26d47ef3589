#include "planner/addresses/place_blocks.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>

namespace aten_recompute {
namespace {

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

using Order = std::vector<size_t>;

void check(std::span<const Block> blocks, int64_t alignment) {
  if (alignment <= 0)
    throw std::invalid_argument("alignment is " + std::to_string(alignment) +
                                ", expected more than 0");
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].bytes < 0 || blocks[i].end < blocks[i].begin) {
      throw std::invalid_argument("block " + std::to_string(i) + " has " +
                                  std::to_string(blocks[i].bytes) + " bytes from step " +
                                  std::to_string(blocks[i].begin) + " to " +
                                  std::to_string(blocks[i].end));
    }
  }
}

int64_t rounded_up(int64_t bytes, int64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Places blocks in a given order, each into the smallest gap that holds it.
class Placer {
 public:
  Placer(std::span<const Block> blocks, int64_t alignment)
      : neighbours_(blocks.size()), offsets_(blocks.size()), is_placed_(blocks.size()) {
    for (const auto& block : blocks)
      bytes_.push_back(rounded_up(block.bytes, alignment));
    for (size_t i = 0; i < blocks.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (bytes_[i] == 0 || bytes_[j] == 0 || blocks[i].begin >= blocks[j].end ||
            blocks[j].begin >= blocks[i].end)
          continue;
        neighbours_[i].push_back(j);
        neighbours_[j].push_back(i);
      }
    }
  }

  // Returns the size of the arena. Stops, with a larger size than `limit`, once that is exceeded.
  int64_t place(const Order& order, int64_t limit) {
    std::fill(is_placed_.begin(), is_placed_.end(), 0);
    int64_t arena_bytes = 0;
    for (const auto block : order) {
      offsets_[block] = best_offset(block);
      is_placed_[block] = 1;
      arena_bytes = std::max(arena_bytes, end_of(block));
      if (arena_bytes > limit)
        break;
    }
    return arena_bytes;
  }

  // Of the last place().
  const std::vector<int64_t>& offsets() const { return offsets_; }
  int64_t end_of(size_t block) const { return offsets_[block] + bytes_[block]; }

  int64_t bytes(size_t block) const { return bytes_[block]; }
  // Blocks that are alive at some step at which this one is.
  const std::vector<size_t>& neighbours(size_t block) const { return neighbours_[block]; }

 private:
  int64_t best_offset(size_t block) {
    taken_.clear();
    for (const auto other : neighbours_[block]) {
      if (is_placed_[other])
        taken_.emplace_back(offsets_[other], end_of(other));
    }
    std::sort(taken_.begin(), taken_.end());
    int64_t free_from = 0, best = -1, smallest_gap = kNoLimit;
    for (const auto& [begin, end] : taken_) {
      const auto gap = begin - free_from;
      if (gap >= bytes_[block] && gap < smallest_gap) {
        smallest_gap = gap;
        best = free_from;
      }
      free_from = std::max(free_from, end);
    }
    return best >= 0 ? best : free_from;
  }

  std::vector<std::vector<size_t>> neighbours_;
  std::vector<int64_t> bytes_;
  std::vector<int64_t> offsets_;
  std::vector<uint8_t> is_placed_;
  std::vector<std::pair<int64_t, int64_t>> taken_;
};

// Orders that do well by themselves: largest first, longest-lived first, both, and as they come.
std::vector<Order> first_orders(std::span<const Block> blocks, const Placer& placer) {
  const auto duration = [&](size_t i) {
    return static_cast<double>(blocks[i].end) - static_cast<double>(blocks[i].begin);
  };
  const std::vector<std::function<double(size_t)>> keys{
      [&](size_t i) { return -static_cast<double>(placer.bytes(i)); },
      [&](size_t i) { return -duration(i); },
      [&](size_t i) { return -static_cast<double>(placer.bytes(i)) * duration(i); },
      [&](size_t i) { return static_cast<double>(blocks[i].begin); }};
  std::vector<Order> orders;
  for (const auto& key : keys) {
    auto& order = orders.emplace_back(blocks.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return key(a) < key(b); });
  }
  return orders;
}

// Improves an order: what reaches the end of the arena, or is in the way of that, is placed sooner.
class OrderSearch {
 public:
  OrderSearch(Placer& placer, Order order) : placer_(placer), order_(std::move(order)) {
    accept(order_, placer_.place(order_, kNoLimit));
  }

  // Tries one change of the order. Returns the size of the arena for the order that is kept.
  int64_t step() {
    // Going a little up now and then leads out of local minima.
    constexpr int64_t kThousandth = 1000;
    constexpr size_t kOneIn = 20;
    auto changed = moved(block_to_move());
    const auto arena_bytes = placer_.place(changed, arena_bytes_ + arena_bytes_ / kThousandth);
    const bool is_near = arena_bytes <= arena_bytes_ + arena_bytes_ / kThousandth;
    if (arena_bytes <= arena_bytes_ || (is_near && draw(kOneIn) == 0))
      accept(std::move(changed), arena_bytes);
    return arena_bytes_;
  }

  const Placement& placement() const { return placement_; }

 private:
  size_t draw(size_t count) { return static_cast<size_t>(random_() % count); }

  void accept(Order order, int64_t arena_bytes) {
    order_ = std::move(order);
    arena_bytes_ = arena_bytes;
    placement_ = {placer_.offsets(), arena_bytes};
    highest_.clear();
    for (size_t block = 0; block < order_.size(); ++block) {
      if (placer_.end_of(block) == arena_bytes)
        highest_.push_back(block);
    }
  }

  size_t block_to_move() {
    const auto highest = highest_[draw(highest_.size())];
    if (draw(2) == 0)
      return highest;
    std::vector<size_t> above;
    for (const auto other : placer_.neighbours(highest)) {
      if (placement_.offsets[other] + placer_.bytes(other) > arena_bytes_ / 2)
        above.push_back(other);
    }
    return above.empty() ? highest : above[draw(above.size())];
  }

  Order moved(size_t block) {
    constexpr size_t kAnywhereOneIn = 8;
    auto order = order_;
    const auto found = std::find(order.begin(), order.end(), block);
    const auto place = static_cast<size_t>(found - order.begin());
    order.erase(found);
    const bool is_anywhere = place == 0 || draw(kAnywhereOneIn) == 0;
    const auto target = draw(is_anywhere ? order.size() + 1 : place);
    order.insert(order.begin() + static_cast<std::ptrdiff_t>(target), block);
    return order;
  }

  Placer& placer_;
  Order order_;
  int64_t arena_bytes_ = 0;
  Placement placement_;
  std::vector<size_t> highest_;
  std::mt19937 random_;
};

}  // namespace

int64_t most_alive_bytes(std::span<const Block> blocks, int64_t alignment) {
  check(blocks, alignment);
  std::map<int32_t, int64_t> changes;
  for (const auto& block : blocks) {
    const auto bytes = rounded_up(block.bytes, alignment);
    changes[block.begin] += bytes;
    changes[block.end] -= bytes;
  }
  int64_t alive = 0, most = 0;
  for (const auto& [step, change] : changes) {
    alive += change;
    most = std::max(most, alive);
  }
  return most;
}

Placement place_blocks(std::span<const Block> blocks, const PlacementOptions& options) {
  const auto bound = most_alive_bytes(blocks, options.alignment);
  Placer placer(blocks, options.alignment);
  Placement best{std::vector<int64_t>(blocks.size(), 0), kNoLimit};
  Order best_order;
  size_t tries = 0;
  for (auto& order : first_orders(blocks, placer)) {
    ++tries;
    const auto arena_bytes = placer.place(order, kNoLimit);
    if (arena_bytes < best.arena_bytes) {
      best = {placer.offsets(), arena_bytes};
      best_order = std::move(order);
    }
  }
  if (best.arena_bytes == bound)
    return best;
  OrderSearch search(placer, std::move(best_order));
  for (; tries < options.max_tries && best.arena_bytes > bound; ++tries) {
    if (search.step() < best.arena_bytes)
      best = search.placement();
  }
  return best;
}

}  // namespace aten_recompute
