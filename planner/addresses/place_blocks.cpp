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

// The upper ends of placed blocks, in bytes.
struct Height {
  int64_t highest = 0;  // end of the highest block
  int64_t excess = 0;   // by how much blocks reach beyond the bound, summed over the blocks
};
constexpr Height kNoHeightLimit{kNoLimit, kNoLimit};

// Places blocks in a given order, each into the smallest gap that holds it.
class Placer {
 public:
  // `bound` is the height beyond which excess counts.
  Placer(std::span<const Block> blocks, int64_t alignment, int64_t bound)
      : bound_(bound),
        neighbors_(blocks.size()),
        offsets_(blocks.size()),
        is_placed_(blocks.size()) {
    for (const auto& block : blocks)
      bytes_.push_back(rounded_up(block.bytes, alignment));
    for (size_t i = 0; i < blocks.size(); ++i) {
      for (size_t j = 0; j < i; ++j) {
        if (bytes_[i] == 0 || bytes_[j] == 0 || blocks[i].begin >= blocks[j].end ||
            blocks[j].begin >= blocks[i].end)
          continue;
        neighbors_[i].push_back(static_cast<uint32_t>(j));
        neighbors_[j].push_back(static_cast<uint32_t>(i));
      }
    }
  }

  // Places the blocks of `order` from number `first` on; those before it, whose height is `height`,
  // keep their places. Returns the height of all. Stops once both of its parts exceed `limit`.
  Height place(const Order& order, size_t first, Height height, const Height& limit) {
    for (size_t i = first; i < order.size(); ++i)
      is_placed_[order[i]] = 0;
    for (size_t i = first; i < order.size(); ++i) {
      const auto block = order[i];
      offsets_[block] = best_offset(block);
      is_placed_[block] = 1;
      height = with(height, block);
      if (height.highest > limit.highest && height.excess > limit.excess)
        break;
    }
    return height;
  }

  // Returns the height of the blocks that `height` is for and this one.
  Height with(const Height& height, size_t block) const {
    const auto end = end_of(block);
    return {std::max(height.highest, end), height.excess + std::max<int64_t>(0, end - bound_)};
  }

  // Puts the blocks of `order` from number `first` on at these offsets.
  void put(const Order& order, size_t first, const std::vector<int64_t>& offsets) {
    for (size_t i = first; i < order.size(); ++i) {
      offsets_[order[i]] = offsets[order[i]];
      is_placed_[order[i]] = 1;
    }
  }

  const std::vector<int64_t>& offsets() const { return offsets_; }
  int64_t end_of(size_t block) const { return offsets_[block] + bytes_[block]; }

  int64_t bytes(size_t block) const { return bytes_[block]; }
  // Blocks that are alive at some step at which this one is.
  const std::vector<uint32_t>& neighbors(size_t block) const { return neighbors_[block]; }

 private:
  int64_t best_offset(size_t block) {
    taken_.clear();
    for (const auto other : neighbors_[block]) {
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

  int64_t bound_;
  std::vector<std::vector<uint32_t>> neighbors_;
  std::vector<int64_t> bytes_;
  std::vector<int64_t> offsets_;
  std::vector<uint8_t> is_placed_;
  std::vector<std::pair<int64_t, int64_t>> taken_;
};

// Returns, for each step at which a block begins or ends, the bytes that are alive from there on.
std::map<int32_t, int64_t> alive_from(std::span<const Block> blocks, int64_t alignment) {
  std::map<int32_t, int64_t> alive;
  for (const auto& block : blocks) {
    const auto bytes = rounded_up(block.bytes, alignment);
    alive[block.begin] += bytes;
    alive[block.end] -= bytes;
  }
  int64_t sum = 0;
  for (auto& [step, bytes] : alive)
    bytes = sum += bytes;
  return alive;
}

// Returns, for each block, the most bytes that are alive at once while it is.
std::vector<int64_t> contention(std::span<const Block> blocks, int64_t alignment) {
  const auto alive = alive_from(blocks, alignment);
  std::vector<int64_t> most(blocks.size(), 0);
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto end = alive.find(blocks[i].end);
    for (auto it = alive.find(blocks[i].begin); it != end; ++it)
      most[i] = std::max(most[i], it->second);
  }
  return most;
}

// Orders that do well by themselves: those alive at the most crowded moment first, the largest,
// the longest-lived, both, and as they come.
std::vector<Order> first_orders(std::span<const Block> blocks, int64_t alignment) {
  const auto crowd = contention(blocks, alignment);
  const auto bytes = [&](size_t i) { return static_cast<double>(blocks[i].bytes); };
  const auto duration = [&](size_t i) {
    return static_cast<double>(blocks[i].end) - static_cast<double>(blocks[i].begin);
  };
  using Key = std::pair<double, double>;
  const auto crowded = [&](size_t i) { return -static_cast<double>(crowd[i]); };
  const std::vector<std::function<Key(size_t)>> keys{
      [&](size_t i) { return Key(-bytes(i), 0); },
      [&](size_t i) { return Key(-duration(i), 0); },
      [&](size_t i) { return Key(-bytes(i) * duration(i), 0); },
      [&](size_t i) { return Key(blocks[i].begin, 0); },
      [&](size_t i) { return Key(crowded(i), -bytes(i)); },
      [&](size_t i) { return Key(crowded(i), -duration(i)); },
      [&](size_t i) { return Key(crowded(i), -bytes(i) * duration(i)); }};
  std::vector<Order> orders;
  for (const auto& key : keys) {
    auto& order = orders.emplace_back(blocks.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return key(a) < key(b); });
  }
  return orders;
}

// Improves an order: what reaches beyond the bound, or is in the way of that, is placed sooner. The
// sum of what reaches beyond it leads almost everywhere, because it falls before the highest block
// does. Where it does not fall any more, orders that lower the highest block are tried for a while.
class OrderSearch {
 public:
  OrderSearch(std::span<const Block> blocks, int64_t alignment, int64_t bound)
      : bound_(bound), placer_(blocks, alignment, bound) {
    auto smallest = kNoHeightLimit;
    for (auto& order : first_orders(blocks, alignment)) {
      const auto height = placer_.place(order, 0, {}, kNoHeightLimit);
      note(height.highest);
      if (height.excess < smallest.excess) {
        smallest = height;
        order_ = std::move(order);
      }
    }
    placer_.place(order_, 0, {}, kNoHeightLimit);
    accept(0);
  }

  // Tries one change of the order.
  void step() {
    constexpr size_t kStale = 500, kByHighest = 200;
    if (tries_left_ == 0) {
      is_by_highest_ = !is_by_highest_;
      tries_left_ = is_by_highest_ ? kByHighest : kStale;
    }
    --tries_left_;
    const auto limit = this->limit();
    const auto first = move(block_to_move());
    const auto height =
        placer_.place(changed_, first, first == 0 ? Height{} : heights_[first - 1], limit);
    if (height.highest > limit.highest && height.excess > limit.excess) {
      placer_.put(order_, first, offsets_);
      return;
    }
    if (!is_by_highest_ && height.excess < heights_.back().excess)
      tries_left_ = kStale;
    order_.swap(changed_);
    accept(first);
    note(height.highest);
  }

  const Placement& best() const { return best_; }

 private:
  size_t draw(size_t count) { return static_cast<size_t>(random_() % count); }

  // Returns what a new order may reach. Going a little up now and then leads out of local minima.
  Height limit() {
    constexpr int64_t kOfHighest = 1000, kOfExcess = 50;
    constexpr size_t kOneIn = 20;
    const auto& now = heights_.back();
    const bool is_lenient = draw(kOneIn) == 0;
    if (is_by_highest_)
      return {now.highest + (is_lenient ? now.highest / kOfHighest : 0), -1};
    return {-1, now.excess + (is_lenient ? now.excess / kOfExcess : 0)};
  }

  // Keeps what the placer has placed last, if it is the best so far.
  void note(int64_t arena_bytes) {
    if (best_.offsets.empty() || arena_bytes < best_.arena_bytes)
      best_ = {placer_.offsets(), arena_bytes};
  }

  // Takes over the order, of which the part from `first` on has changed.
  void accept(size_t first) {
    offsets_ = placer_.offsets();
    places_.resize(order_.size());
    heights_.resize(order_.size());
    for (size_t i = first; i < order_.size(); ++i) {
      places_[order_[i]] = i;
      heights_[i] = placer_.with(i == 0 ? Height{} : heights_[i - 1], order_[i]);
    }
    above_.clear();
    for (size_t block = 0; block < order_.size(); ++block) {
      if (placer_.end_of(block) > bound_)
        above_.push_back(block);
    }
  }

  // There is a block beyond the bound, else the search would be over.
  size_t block_to_move() {
    candidates_ = above_;
    if (is_by_highest_) {
      const auto highest = heights_.back().highest;
      std::erase_if(candidates_, [&](size_t each) { return placer_.end_of(each) != highest; });
    }
    const auto block = candidates_[draw(candidates_.size())];
    if (draw(2) == 0)
      return block;
    candidates_.clear();
    for (const auto other : placer_.neighbors(block)) {
      if (places_[other] < places_[block])
        candidates_.push_back(other);
    }
    return candidates_.empty() ? block : candidates_[draw(candidates_.size())];
  }

  // Writes an order in which the block stands elsewhere to `changed_`. Returns the number of the
  // first block that is not the one of `order_`.
  size_t move(size_t block) {
    constexpr size_t kAnywhereOneIn = 8;
    const auto place = places_[block];
    const bool is_anywhere = place == 0 || draw(kAnywhereOneIn) == 0;
    const auto target = draw(is_anywhere ? order_.size() : place);
    changed_ = order_;
    const auto begin = changed_.begin();
    const auto from = static_cast<std::ptrdiff_t>(place), to = static_cast<std::ptrdiff_t>(target);
    if (target < place)
      std::rotate(begin + to, begin + from, begin + from + 1);
    else
      std::rotate(begin + from, begin + from + 1, begin + to + 1);
    return std::min(place, target);
  }

  int64_t bound_;
  Placer placer_;
  Order order_, changed_;
  std::vector<int64_t> offsets_;  // of order_
  std::vector<size_t> places_;    // per block: its number in order_
  std::vector<Height> heights_;   // per number in order_: of the blocks up to it
  std::vector<size_t> above_;     // blocks that reach beyond the bound
  std::vector<size_t> candidates_;
  bool is_by_highest_ = true;
  size_t tries_left_ = 0;
  Placement best_;
  std::mt19937 random_;
};

// Returns the size from which on blocks count as large: the smaller ones together need little.
int64_t least_large(std::span<const Block> blocks, int64_t alignment, int64_t bound) {
  constexpr int64_t kThousandth = 1000;
  std::vector<Block> by_size(blocks.begin(), blocks.end());
  std::sort(by_size.begin(), by_size.end(),
            [](const Block& a, const Block& b) { return a.bytes < b.bytes; });
  // The longest beginning of `by_size` whose blocks fit into a thousandth of the arena.
  size_t fits = 0, too_many = by_size.size() + 1;
  while (too_many - fits > 1) {
    const auto middle = (fits + too_many) / 2;
    const auto alive = most_alive_bytes(std::span(by_size).first(middle), alignment);
    (alive <= bound / kThousandth ? fits : too_many) = middle;
  }
  return fits == by_size.size() ? kNoLimit : by_size[fits].bytes;
}

}  // namespace

int64_t most_alive_bytes(std::span<const Block> blocks, int64_t alignment) {
  check(blocks, alignment);
  int64_t most = 0;
  for (const auto& [step, bytes] : alive_from(blocks, alignment))
    most = std::max(most, bytes);
  return most;
}

struct PlacementSearch::State {
  State(std::span<const Block> all, int64_t alignment)
      : blocks(all.begin(), all.end()),
        alignment(alignment),
        bound(most_alive_bytes(all, alignment)) {
    const auto least = least_large(all, alignment, bound);
    std::vector<Block> large_blocks;
    for (size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].bytes < least)
        continue;
      large.push_back(i);
      large_blocks.push_back(blocks[i]);
    }
    search = std::make_unique<OrderSearch>(large_blocks, alignment, bound);
  }

  std::vector<Block> blocks;
  int64_t alignment;
  int64_t bound;
  std::vector<size_t> large;            // indices into `blocks`
  std::unique_ptr<OrderSearch> search;  // for these
};

PlacementSearch::PlacementSearch(std::span<const Block> blocks, int64_t alignment)
    : state_(std::make_unique<State>(blocks, alignment)) {}
PlacementSearch::~PlacementSearch() = default;
PlacementSearch::PlacementSearch(PlacementSearch&&) noexcept = default;
PlacementSearch& PlacementSearch::operator=(PlacementSearch&&) noexcept = default;

void PlacementSearch::improve(size_t tries) {
  for (size_t i = 0; i < tries && arena_bytes() > bound(); ++i)
    state_->search->step();
}

int64_t PlacementSearch::arena_bytes() const {
  return state_->search->best().arena_bytes;
}

int64_t PlacementSearch::bound() const {
  return state_->bound;
}

Placement PlacementSearch::placement() const {
  const auto& blocks = state_->blocks;
  Placer placer(blocks, state_->alignment, state_->bound);
  Placement placement{std::vector<int64_t>(blocks.size(), 0), 0};
  const auto& best = state_->search->best();
  std::vector<bool> is_large(blocks.size(), false);
  for (size_t k = 0; k < state_->large.size(); ++k) {
    placement.offsets[state_->large[k]] = best.offsets[k];
    is_large[state_->large[k]] = true;
  }
  placer.put(state_->large, 0, placement.offsets);
  Order small;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (!is_large[i])
      small.push_back(i);
  }
  std::stable_sort(small.begin(), small.end(),
                   [&](size_t a, size_t b) { return blocks[a].bytes > blocks[b].bytes; });
  const auto highest = placer.place(small, 0, {}, kNoHeightLimit).highest;
  placement.offsets = placer.offsets();
  placement.arena_bytes = std::max(best.arena_bytes, highest);
  return placement;
}

Placement place_blocks(std::span<const Block> blocks, const PlacementOptions& options) {
  PlacementSearch search(blocks, options.alignment);
  search.improve(options.max_tries);
  return search.placement();
}

}  // namespace aten_recompute
