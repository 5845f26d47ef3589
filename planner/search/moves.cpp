#include "planner/search/moves.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace aten_recompute {
namespace {

// The largest of any stretch of a row, from the largest of all stretches of 1, 2, 4, ... elements.
class RangeMaximum {
 public:
  explicit RangeMaximum(std::vector<int64_t> row) {
    levels_.push_back(std::move(row));
    for (size_t half = 1; 2 * half <= levels_[0].size(); half *= 2) {
      const auto& below = levels_.back();
      std::vector<int64_t> level(below.size() - half);
      for (size_t i = 0; i < level.size(); ++i)
        level[i] = std::max(below[i], below[i + half]);
      levels_.push_back(std::move(level));
    }
  }

  // Of begin, ..., end - 1; 0 if there is none.
  int64_t between(int32_t begin, int32_t end) const {
    if (begin >= end)
      return 0;
    const auto width = std::bit_width(static_cast<uint32_t>(end - begin)) - 1;
    return std::max(levels_[width][begin], levels_[width][end - (1 << width)]);
  }

 private:
  std::vector<std::vector<int64_t>> levels_;
};

}  // namespace

Move apply(RetentionPlan& decisions, const Move& move) {
  Move undo = move;
  if (move.value >= 0) {
    undo.drop = decisions.dropped(move.value, static_cast<size_t>(move.slot));
    decisions.set(move.value, static_cast<size_t>(move.slot), move.drop);
  }
  if (move.node >= 0) {
    undo.choice = decisions.chosen(move.node);
    decisions.choose(move.node, move.choice);
  }
  return undo;
}

std::vector<Move> apply_all(RetentionPlan& decisions, std::span<const Move> moves) {
  std::vector<Move> undo;
  undo.reserve(moves.size());
  for (const auto& move : moves)
    undo.push_back(apply(decisions, move));
  std::reverse(undo.begin(), undo.end());
  return undo;
}

Moves::Moves(const Problem& problem, const std::vector<int32_t>& droppable)
    : problem_(problem),
      classes_(classes_of(problem)),
      is_droppable_(problem.num_values(), 0),
      droppable_(droppable) {
  for (auto value : droppable_)
    is_droppable_[value] = 1;
  for (size_t node = problem.num_forward; node < problem.num_nodes; ++node) {
    if (!problem.alternatives[node].empty())
      with_alternatives_.push_back(static_cast<int32_t>(node));
  }
}

void Moves::keep_below(int64_t bytes) {
  std::erase_if(droppable_, [&](int32_t value) {
    const bool small = problem_.value_bytes(value) < bytes && !problem_.is_must_recompute(value);
    is_droppable_[value] = !small;
    return small;
  });
}

std::vector<std::vector<int32_t>> Moves::kinds() const {
  std::map<uint64_t, std::vector<int32_t>> by_class;
  for (auto value : droppable_)
    by_class[classes_.of_value[value]].push_back(value);
  std::vector<std::vector<int32_t>> kinds;
  for (auto& [kind, values] : by_class)
    kinds.push_back(std::move(values));
  return kinds;
}

uint64_t Moves::group_of(const Move& move) const {
  const auto node_at = [&](int32_t slot) {
    const auto node = static_cast<size_t>(slot) + problem_.num_forward - 1;
    return slot == 0 || node >= problem_.num_nodes ? 0 : classes_.of_node[node];
  };
  uint64_t group = move.drop ? 1 : 2;
  const auto add = [&](uint64_t part) {
    group = (group ^ part) * 0x9E3779B97F4A7C15ULL;
    group ^= group >> 32;
  };
  if (move.value >= 0) {
    add(classes_.of_value[move.value]);
    add(node_at(move.slot));
    add(node_at(move.until));
  }
  if (move.node >= 0) {
    add(classes_.of_node[move.node]);
    add(classes_.of_node[move.choice]);
  }
  return group;
}

RetentionPlan Moves::canonicalize(const Simulator& simulator,
                                  const RetentionPlan& decisions) const {
  auto said = decisions;
  for (size_t i = droppable_.size(); i-- > 0;)  // from the end, where it is faster
    said.set_always(droppable_[i], true);
  for (const auto& gap : simulator.gaps()) {
    if (!gap.recomputed)
      said.keep(gap.value, static_cast<size_t>(gap.from));
  }
  return said;
}

std::vector<Move> Moves::candidates(const Simulator& simulator, const RetentionPlan& decisions,
                                    int64_t limit_bytes) const {
  // over[s]: slots below s whose peak exceeds the limit; the forward is slot 0.
  std::vector<int32_t> over(problem_.num_backward() + 3, 0);
  const auto& steps = simulator.steps();
  const auto& bytes = simulator.step_bytes();
  for (size_t i = 0; i < steps.size(); ++i) {
    if (bytes[i] > limit_bytes)
      over[steps[i].slot + 1] = 1;
  }
  for (size_t s = 1; s < over.size(); ++s)
    over[s] += over[s - 1];
  std::vector<Move> found;
  const auto add = [&](Move move) {
    move.group = group_of(move);
    found.push_back(move);
  };
  for (const auto& gap : simulator.gaps()) {
    if (!is_droppable_[gap.value])
      continue;
    Move move{.value = gap.value, .slot = gap.from, .until = gap.to};
    if (gap.recomputed) {
      if (gap.from > 0 || !problem_.is_must_recompute(gap.value))
        add(move);
    } else if (over[gap.to + 1] > over[gap.from]) {
      move.drop = true;
      add(move);
      // Dropped and then made in another way, from something smaller that is kept.
      move.node = problem_.producer[gap.value];
      for (auto alternative : problem_.alternatives[move.node]) {
        move.choice = alternative;
        if (decisions.chosen(move.node) != alternative)
          add(move);
      }
    }
  }
  for (auto node : with_alternatives_) {
    for (auto alternative : problem_.alternatives[node]) {
      const bool chosen = decisions.chosen(node) == alternative;
      add({.drop = !chosen, .node = node, .choice = chosen ? node : alternative});
    }
  }
  return found;
}

std::vector<Move> Moves::offered_keeps_with_room(const Simulator& simulator,
                                                 const RetentionPlan& decisions,
                                                 int64_t limit_bytes) const {
  std::vector<int64_t> slots(problem_.num_backward() + 2, 0);
  const auto& steps = simulator.steps();
  for (size_t i = 0; i < steps.size(); ++i)
    slots[steps[i].slot] = std::max(slots[steps[i].slot], simulator.step_bytes()[i]);
  const RangeMaximum peaks(std::move(slots));
  auto keeps = candidates(simulator, decisions, limit_bytes);
  std::erase_if(keeps, [&](const Move& move) {
    return move.drop || (move.value >= 0 && peaks.between(move.slot + 1, move.until) +
                                                    problem_.value_bytes(move.value) >
                                                limit_bytes);
  });
  return keeps;
}

}  // namespace aten_recompute
