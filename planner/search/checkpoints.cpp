#include "planner/search/checkpoints.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace aten_recompute {
namespace {

// The effort of the dynamic program grows with the third power of the number of cuts and linearly
// with the number of levels in which memory is counted.
constexpr size_t kMostCuts = 32;
constexpr int64_t kLevels = 64;
constexpr double kNever = std::numeric_limits<double>::infinity();

}  // namespace

// Per range of parts and level of memory: the least time to recompute what the backward of these
// parts needs, with the checkpoint before them in memory. `end` is one of `num_ends` ends.
class Checkpoints::Table {
 public:
  struct Entry {
    double seconds = kNever;
    int32_t split = -1;  // the next cut to keep, where the range has several parts
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
  cuts_.push_back({});
  for (auto& cut :
       aten_recompute::find_cuts(problem_, values_, 0, problem_.num_forward, kMostCuts)) {
    for (auto value : cut.values)
      cuts_with_[value].push_back(cuts_.size());
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
  // A backward node belongs to the last part of which it or a later node reads anything.
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

std::vector<int64_t> Checkpoints::needs(const SimulatedRun& run) const {
  std::vector<int64_t> in_slot(problem_.num_backward() + 1, 0);
  for (size_t i = 0; i < run.schedule.steps.size(); ++i) {
    auto& most = in_slot[static_cast<size_t>(run.schedule.steps[i].slot)];
    most = std::max(most, run.step_bytes[i]);
  }
  std::vector<int64_t> needs;
  int64_t kept_bytes = 0;  // of the checkpoints before the part
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

// Returns the bytes of values that are alive at `cut` and not at `kept`.
int64_t Checkpoints::bytes_beside(size_t cut, size_t kept) const {
  int64_t bytes = 0;
  const auto& known = cuts_[kept].values;
  for (auto value : cuts_[cut].values) {
    if (std::find(known.begin(), known.end(), value) == known.end())
      bytes += problem_.value_bytes(value);
  }
  return bytes;
}

// The dynamic program. A range of parts is either one part, whose backward runs at once, or it is
// split at a cut: the forward runs up to the cut, the parts after it go first, with the cut's
// values in memory, then those before it.
class Checkpoints::Optimizer {
 public:
  Optimizer(const Checkpoints& checkpoints, const std::vector<int64_t>& needs, int64_t limit_bytes)
      : count_(checkpoints.parts_.size()),
        level_bytes_(limit_bytes / kLevels + 1),
        limit_(limit_bytes / level_bytes_),
        seconds_before_(count_ + 1, 0.0),
        beside_(checkpoints.beside_),
        backward_(count_, count_ + 1),
        forward_(count_, 1) {
    for (size_t i = 0; i < count_; ++i) {
      seconds_before_[i + 1] = seconds_before_[i] + checkpoints.parts_[i].seconds;
      for (auto& bytes : beside_[i])
        bytes = levels_of(bytes);
      needs_.push_back(levels_of(needs[i]));
    }
    for (size_t length = 1; length <= count_; ++length) {
      for (size_t begin = 0; begin + length <= count_; ++begin) {
        for (int64_t level = 0; level <= limit_; ++level)
          entry(begin, begin + length, level) = best(begin, begin + length, level);
      }
    }
  }

  // Returns, per part, the cuts that are kept while its backward runs; nothing if no choice fits.
  std::vector<std::vector<size_t>> kept_cuts() {
    if (entry(0, count_, limit_).seconds == kNever)
      return {};
    std::vector<std::vector<size_t>> kept(count_);
    std::vector<size_t> now{0};
    unfold(0, count_, limit_, now, kept);
    return kept;
  }

 private:
  int64_t levels_of(int64_t bytes) const { return (bytes + level_bytes_ - 1) / level_bytes_; }

  // A range that ends with the last part is entered from the forward, which passes all cuts anyway,
  // so keeping them takes no time. All other ranges are entered in the backward.
  Table::Entry& entry(size_t begin, size_t end, int64_t level) {
    return end == count_ ? forward_.at(begin, 0, level) : backward_.at(begin, end, level);
  }

  Table::Entry best(size_t begin, size_t end, int64_t level) {
    Table::Entry best;
    if (end - begin == 1)
      best.seconds = needs_[begin] <= level ? 0.0 : kNever;
    for (auto split = begin + 1; split < end; ++split) {
      const auto left = level - beside_[begin][split];
      if (left < 0)
        continue;
      const auto way = end == count_ ? 0.0 : seconds_before_[split] - seconds_before_[begin];
      const auto seconds =
          way + entry(split, end, left).seconds + backward_.at(begin, split, level).seconds;
      if (seconds < best.seconds)
        best = {seconds, static_cast<int32_t>(split)};
    }
    return best;
  }

  // `now`: the cuts that are in memory.
  void unfold(size_t begin, size_t end, int64_t level, std::vector<size_t>& now,
              std::vector<std::vector<size_t>>& kept) {
    if (end - begin == 1) {
      kept[begin] = now;
      return;
    }
    const auto split = static_cast<size_t>(entry(begin, end, level).split);
    now.push_back(split);
    unfold(split, end, level - beside_[begin][split], now, kept);
    now.pop_back();
    unfold(begin, split, level, now, kept);
  }

  size_t count_;  // of parts
  int64_t level_bytes_;
  int64_t limit_;  // in levels, as are needs_ and beside_
  std::vector<double> seconds_before_;
  std::vector<int64_t> needs_;
  std::vector<std::vector<int64_t>> beside_;
  Table backward_;
  Table forward_;
};

std::vector<std::vector<size_t>> Checkpoints::kept_cuts(const std::vector<int64_t>& needs,
                                                        int64_t limit_bytes) const {
  return Optimizer(*this, needs, limit_bytes).kept_cuts();
}

// A value that is alive at no cut keeps what `inner` says within its own part.
void Checkpoints::keep_inner_value(int32_t value, const RetentionPlan& inner,
                                   RetentionPlan& plan) const {
  if (!inner.dropped_in_first_slot(value))
    return;  // kept from the forward
  // Other parts make it only in passing.
  plan.drop_always(value);
  const auto& own = parts_[made_in_[value]];
  for (auto slot = own.begin_slot; slot < own.end_slot; ++slot) {
    if (!inner.dropped(value, slot))
      plan.keep(value, slot);
  }
}

std::optional<RetentionPlan> Checkpoints::schedule(const RetentionPlan& inner,
                                                   const std::vector<int64_t>& needs,
                                                   int64_t limit_bytes) const {
  const auto kept = kept_cuts(needs, limit_bytes);
  if (kept.empty())
    return std::nullopt;
  // [cut][part]: the cut is kept while the backward of the part runs.
  std::vector<std::vector<uint8_t>> is_kept(kept.size(), std::vector<uint8_t>(kept.size(), 0));
  for (size_t part = 0; part < kept.size(); ++part) {
    for (auto cut : kept[part])
      is_kept[cut][part] = 1;
  }
  auto plan = inner;
  std::vector<uint8_t> dropped(inner.num_slots());
  for (auto value : values_) {
    const auto& cuts = cuts_with_[value];
    if (cuts.empty()) {
      keep_inner_value(value, inner, plan);
      continue;
    }
    // The backward of the part that makes the value is the last to read it.
    const auto own = made_in_[value];
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
    plan.set_slots(value, dropped);
  }
  return plan;
}

}  // namespace aten_recompute
