#include "planner/search/checkpoints.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace aten_recompute {
namespace {

// The table's effort grows with the third power of the one and the first of the other.
constexpr size_t kMostCuts = 32;
constexpr int64_t kLevels = 64;  // in which memory is counted
constexpr double kNever = std::numeric_limits<double>::infinity();

// Per value: the last forward node that reads it or a view of it; -1: none.
std::vector<int32_t> last_forward_use(const Problem& problem) {
  const auto behind = base_values(problem);
  std::vector<int32_t> last(problem.num_values(), -1);
  for (size_t node = 0; node < problem.num_forward; ++node) {
    for (auto input : problem.inputs[node]) {
      for (auto root : behind[input])
        last[root] = static_cast<int32_t>(node);
    }
  }
  return last;
}

// The lowest place of each valley of a row, with its height. A valley ends where the row has risen
// by a quarter.
std::vector<std::pair<int64_t, int32_t>> valleys_of(const std::vector<int64_t>& row) {
  constexpr double kRise = 1.25;
  std::vector<std::pair<int64_t, int32_t>> valleys;
  bool falling = false;
  std::pair<int64_t, int32_t> extreme{0, -1};
  for (size_t i = 0; i < row.size(); ++i) {
    const auto here = std::pair(row[i], static_cast<int32_t>(i));
    if (falling ? here.first < extreme.first : here.first > extreme.first)
      extreme = here;
    const auto height = static_cast<double>(here.first);
    const auto turned = static_cast<double>(extreme.first);
    if (falling ? height > kRise * turned : kRise * height < turned) {
      if (falling)
        valleys.push_back(extreme);
      falling = !falling;
      extreme = here;
    }
  }
  return valleys;
}

// At most `count`: of so many neighbours as that takes, the lowest.
std::vector<std::pair<int64_t, int32_t>> lowest_of_neighbours(
    const std::vector<std::pair<int64_t, int32_t>>& valleys, size_t count) {
  const auto stride = (valleys.size() + count - 1) / count;
  std::vector<std::pair<int64_t, int32_t>> lowest;
  for (size_t i = 0; i < valleys.size(); i += stride) {
    const auto end = std::min(valleys.size(), i + stride);
    lowest.push_back(*std::min_element(valleys.begin() + static_cast<int64_t>(i),
                                       valleys.begin() + static_cast<int64_t>(end)));
  }
  return lowest;
}

}  // namespace

// By the parts from `begin` up to one of `num_ends` ends, and levels of memory: the least time for
// computing again what their backward needs, with the checkpoint before them in memory.
class Checkpoints::Table {
 public:
  struct Entry {
    double seconds = kNever;
    int32_t split = -1;  // the next cut to be kept, of several parts
  };

  Table(size_t num_parts, size_t num_ends)
      : num_ends_(num_ends), entries_(num_parts * num_ends * static_cast<size_t>(kLevels + 1)) {}

  Entry& at(size_t begin, size_t end, int64_t level) {
    return entries_[(begin * num_ends_ + end) * static_cast<size_t>(kLevels + 1) +
                    static_cast<size_t>(level)];
  }

 private:
  size_t num_ends_;
  std::vector<Entry> entries_;
};

Checkpoints::Checkpoints(const Problem& problem, const std::vector<int32_t>& droppable)
    : problem_(problem),
      values_(droppable),
      cuts_with_(problem.num_values()),
      made_in_(problem.num_values(), 0) {
  std::sort(values_.begin(), values_.end());
  find_cuts();
  find_parts();
  beside_.resize(cuts_.size(), std::vector<int64_t>(cuts_.size(), 0));
  for (size_t kept = 0; kept < cuts_.size(); ++kept) {
    for (auto cut = kept + 1; cut < cuts_.size(); ++cut)
      beside_[kept][cut] = bytes_beside(cut, kept);
  }
}

void Checkpoints::find_cuts() {
  const auto last_use = last_forward_use(problem_);
  std::vector<int64_t> alive(problem_.num_forward + 1, 0);
  for (auto value : values_) {
    if (last_use[value] <= problem_.producer[value])
      continue;
    alive[problem_.producer[value]] += problem_.value_bytes(value);
    alive[last_use[value]] -= problem_.value_bytes(value);
  }
  for (size_t i = 1; i < alive.size(); ++i)
    alive[i] += alive[i - 1];
  const auto valleys = lowest_of_neighbours(valleys_of(alive), kMostCuts);
  cuts_.push_back({});
  for (const auto& [bytes, after] : valleys) {
    Cut cut{after, {}};
    for (auto value : values_) {
      if (problem_.producer[value] <= after && last_use[value] > after) {
        cut.values.push_back(value);
        cuts_with_[value].push_back(cuts_.size());
      }
    }
    cuts_.push_back(std::move(cut));
  }
}

size_t Checkpoints::part_of(int32_t node) const {
  size_t part = cuts_.size() - 1;
  while (cuts_[part].after >= node)
    --part;
  return part;
}

void Checkpoints::find_parts() {
  parts_.resize(cuts_.size());
  for (size_t i = 0; i < problem_.num_forward; ++i) {
    const auto node = static_cast<int32_t>(i);
    if (problem_.optional[node] == 0)
      parts_[part_of(node)].seconds += problem_.seconds[node];
  }
  for (auto value : values_)
    made_in_[value] = part_of(problem_.producer[value]);
  // A backward node belongs to the last part that it, or a node behind it, reads anything of.
  size_t part = 0;
  parts_[0].end_slot = problem_.num_backward() + 1;
  for (size_t slot = problem_.num_backward(); slot > 0; --slot) {
    auto reads = part;
    for (auto input : problem_.inputs[problem_.num_forward + slot - 1]) {
      const auto producer = problem_.producer[input];
      if (producer >= 0 && problem_.in_forward(producer))
        reads = std::max(reads, part_of(producer));
    }
    for (; part < reads; ++part)
      parts_[part].begin_slot = parts_[part + 1].end_slot = slot + 1;
  }
  for (; part < parts_.size(); ++part) {
    parts_[part].begin_slot = 1;
    if (part + 1 < parts_.size())
      parts_[part + 1].end_slot = 1;
  }
}

RetentionPlan Checkpoints::keep_all(const RetentionPlan& inner) const {
  auto keeping = inner;
  for (auto value : values_) {
    if (!cuts_with_[value].empty())
      keeping.set_always(value, false);
  }
  return keeping;
}

std::vector<int64_t> Checkpoints::needs(const Simulator& simulator) const {
  std::vector<int64_t> in_slot(problem_.num_backward() + 1, 0);
  for (size_t i = 0; i < simulator.steps().size(); ++i) {
    auto& most = in_slot[static_cast<size_t>(simulator.steps()[i].slot)];
    most = std::max(most, simulator.step_bytes()[i]);
  }
  std::vector<int64_t> needs;
  int64_t kept_bytes = 0;  // of the checkpoints up to a part
  for (size_t part = 0; part < parts_.size(); ++part) {
    for (auto value : cuts_[part].values)
      kept_bytes += cuts_with_[value].front() == part ? problem_.value_bytes(value) : 0;
    int64_t most = kept_bytes;
    for (auto slot = parts_[part].begin_slot; slot < parts_[part].end_slot; ++slot)
      most = std::max(most, in_slot[slot]);
    needs.push_back(most - kept_bytes);
  }
  return needs;
}

// Of what is alive at `cut`, that which is not alive at cut `kept`.
int64_t Checkpoints::bytes_beside(size_t cut, size_t kept) const {
  int64_t bytes = 0;
  const auto& known = cuts_[kept].values;
  for (auto value : cuts_[cut].values) {
    if (std::find(known.begin(), known.end(), value) == known.end())
      bytes += problem_.value_bytes(value);
  }
  return bytes;
}

// Per part: the cuts that are kept while its backward runs. Empty: there is no way.
std::vector<std::vector<size_t>> Checkpoints::kept_cuts(const std::vector<int64_t>& needs,
                                                        int64_t limit_bytes) const {
  const auto count = parts_.size();
  const auto level_bytes = limit_bytes / kLevels + 1;
  const auto limit = limit_bytes / level_bytes;
  const auto levels_of = [&](int64_t bytes) { return (bytes + level_bytes - 1) / level_bytes; };
  std::vector<double> seconds_before(count + 1, 0.0);
  auto beside = beside_;  // in levels
  for (size_t i = 0; i < count; ++i) {
    seconds_before[i + 1] = seconds_before[i] + parts_[i].seconds;
    for (auto& bytes : beside[i])
      bytes = levels_of(bytes);
  }
  // Up to the part before an end; in the forward, up to the last, where every cut is passed anyway.
  Table again(count, count + 1);
  Table in_forward(count, 1);
  const auto fill = [&](size_t begin, size_t end, int64_t level, bool forward) {
    Table::Entry best;
    if (end - begin == 1)
      best.seconds = levels_of(needs[begin]) <= level ? 0.0 : kNever;
    for (auto split = begin + 1; split < end; ++split) {
      const auto left = level - beside[begin][split];
      if (left < 0)
        continue;
      const auto behind = forward ? in_forward.at(split, 0, left).seconds
                                  : seconds_before[split] - seconds_before[begin] +
                                        again.at(split, end, left).seconds;
      const auto seconds = behind + again.at(begin, split, level).seconds;
      if (seconds < best.seconds)
        best = {seconds, static_cast<int32_t>(split)};
    }
    (forward ? in_forward.at(begin, 0, level) : again.at(begin, end, level)) = best;
  };
  for (size_t length = 1; length <= count; ++length) {
    for (size_t begin = 0; begin + length <= count; ++begin) {
      for (int64_t level = 0; level <= limit; ++level) {
        if (begin + length < count)
          fill(begin, begin + length, level, /*forward=*/false);
        else
          fill(begin, count, level, /*forward=*/true);
      }
    }
  }
  if (in_forward.at(0, 0, limit).seconds == kNever)
    return {};
  std::vector<std::vector<size_t>> kept(count);
  std::vector<size_t> now{0};
  const auto unfold = [&](auto&& self, size_t begin, size_t end, int64_t level) -> void {
    if (end - begin == 1) {
      kept[begin] = now;
      return;
    }
    const auto& entry = end == count ? in_forward.at(begin, 0, level) : again.at(begin, end, level);
    const auto split = static_cast<size_t>(entry.split);
    now.push_back(split);
    self(self, split, end, level - beside[begin][split]);
    now.pop_back();
    self(self, begin, split, level);
  };
  unfold(unfold, 0, count, limit);
  return kept;
}

std::optional<RetentionPlan> Checkpoints::schedule(const RetentionPlan& inner,
                                                   const std::vector<int64_t>& needs,
                                                   int64_t limit_bytes) const {
  const auto kept = kept_cuts(needs, limit_bytes);
  if (kept.empty())
    return std::nullopt;
  // Per cut and part: is it kept.
  std::vector<std::vector<uint8_t>> is_kept(kept.size(), std::vector<uint8_t>(kept.size(), 0));
  for (size_t part = 0; part < kept.size(); ++part) {
    for (auto cut : kept[part])
      is_kept[cut][part] = 1;
  }
  auto decisions = inner;
  std::vector<uint8_t> dropped(inner.num_slots());
  for (auto value : values_) {
    const auto& cuts = cuts_with_[value];
    // The part that makes it is the last that reads it.
    const auto own = made_in_[value];
    if (cuts.empty()) {
      // What is made in passing goes at once; what is kept from the forward stays.
      if (!inner.dropped_at_forward_end(value))
        continue;
      decisions.drop_always(value);
      for (auto slot = parts_[own].begin_slot; slot < parts_[own].end_slot; ++slot) {
        if (!inner.dropped(value, slot))
          decisions.keep(value, slot);
      }
      continue;
    }
    std::fill(dropped.begin(), dropped.end(), uint8_t{1});
    dropped[0] = inner.dropped(value, 0);
    for (auto slot = parts_[own].begin_slot; slot < parts_[own].end_slot; ++slot)
      dropped[slot] = inner.dropped(value, slot);
    for (auto part = own + 1; part < parts_.size(); ++part) {
      const bool keep = std::any_of(cuts.begin(), cuts.end(),
                                    [&](size_t cut) { return is_kept[cut][part] != 0; });
      if (keep) {
        std::fill(dropped.begin() + static_cast<int64_t>(parts_[part].begin_slot),
                  dropped.begin() + static_cast<int64_t>(parts_[part].end_slot), uint8_t{0});
      }
      if (part + 1 == parts_.size())
        dropped[0] = !keep || problem_.is_must_recompute(value);
    }
    decisions.set_slots(value, dropped);
  }
  return decisions;
}

}  // namespace aten_recompute
