#include "planner/search/moves.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

namespace aten_recompute {
namespace {

// Answers queries for the maximum of a range in constant time, from the maxima of all ranges of 1,
// 2, 4, ... elements (a sparse table).
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

  // Returns the maximum of elements begin, ..., end - 1; 0 if there are none.
  int64_t of(int32_t begin, int32_t end) const {
    if (begin >= end)
      return 0;
    const auto width = std::bit_width(static_cast<uint32_t>(end - begin)) - 1;
    // There is an element, so that width is at least 0, which the analyzer does not see.
    // NOLINTNEXTLINE(clang-analyzer-core.UndefinedBinaryOperatorResult)
    return std::max(levels_[width][begin], levels_[width][end - (1 << width)]);
  }

 private:
  std::vector<std::vector<int64_t>> levels_;
};

}  // namespace

Move apply(RetentionPlan& plan, const Move& move) {
  Move undo = move;
  if (move.value >= 0) {
    undo.drop = plan.dropped(move.value, static_cast<size_t>(move.slot));
    plan.set(move.value, static_cast<size_t>(move.slot), move.drop);
  }
  if (move.node >= 0) {
    undo.choice = plan.chosen(move.node);
    plan.choose(move.node, move.choice);
  }
  return undo;
}

std::vector<Move> apply_all(RetentionPlan& plan, std::span<const Move> moves) {
  std::vector<Move> undo;
  undo.reserve(moves.size());
  for (const auto& move : moves)
    undo.push_back(apply(plan, move));
  std::reverse(undo.begin(), undo.end());
  return undo;
}

Moves::Moves(const Problem& problem, const std::vector<int32_t>& droppable)
    : problem_(problem),
      classes_(classes_of(problem)),
      is_droppable_(problem.num_values(), 0),
      droppable_(droppable),
      last_slots_(last_slots_of_forward(problem, base_values(problem))) {
  for (auto value : droppable_)
    is_droppable_[value] = 1;
  for (size_t node = problem.num_forward; node < problem.num_nodes; ++node) {
    if (!problem.alternatives[node].empty())
      with_alternatives_.push_back(static_cast<int32_t>(node));
  }
}

void Moves::ignore_below(int64_t bytes) {
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
    if (slot == 0 || static_cast<size_t>(slot) >= problem_.num_slots())
      return uint64_t{0};
    return classes_.of_node[problem_.node_of(static_cast<size_t>(slot))];
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

RetentionPlan Moves::canonicalize(const SimulatedRun& run) const {
  auto plan = run.plan;
  for (size_t i = droppable_.size(); i-- > 0;)  // exceptions are erased faster from the end
    plan.set_always(droppable_[i], true);
  for (const auto& gap : run.schedule.gaps) {
    if (!gap.recomputed)
      plan.keep(gap.value, static_cast<size_t>(gap.from));
  }
  return plan;
}

// Adds the moves about the value of a gap. `is_over_limit`: some slot in the gap exceeds the limit.
void Moves::add_moves(const Gap& gap, const RetentionPlan& plan, bool is_over_limit,
                      std::vector<Move>& found) const {
  Move move{.value = gap.value, .slot = gap.from, .until = gap.to};
  if (gap.recomputed) {
    const bool is_over_loss = problem_.is_before_loss(gap.from) && !problem_.is_before_loss(gap.to);
    if (!is_over_loss || !problem_.is_must_recompute(gap.value))
      add(move, found);
    return;
  }
  if (!is_over_limit)
    return;
  move.drop = true;
  add(move, found);
  // The value can also be dropped and then computed by an alternative, from smaller values.
  move.node = problem_.producer[gap.value];
  for (auto alternative : problem_.alternatives[move.node]) {
    move.choice = alternative;
    if (plan.chosen(move.node) != alternative)
      add(move, found);
  }
}

void Moves::add(Move move, std::vector<Move>& found) const {
  move.group = group_of(move);
  found.push_back(move);
}

std::vector<Move> Moves::candidates(const SimulatedRun& run, int64_t limit_bytes) const {
  // over[s]: the number of slots below s whose peak exceeds the limit.
  std::vector<int32_t> over(problem_.num_slots() + 2, 0);
  const auto& steps = run.schedule.steps;
  for (size_t i = 0; i < steps.size(); ++i) {
    if (run.step_bytes[i] > limit_bytes)
      over[steps[i].slot + 1] = 1;
  }
  for (size_t s = 1; s < over.size(); ++s)
    over[s] += over[s - 1];
  std::vector<Move> found;
  for (const auto& gap : run.schedule.gaps) {
    if (is_droppable_[gap.value])
      add_moves(gap, run.plan, over[gap.to + 1] > over[gap.from], found);
  }
  for (auto node : with_alternatives_) {
    for (auto alternative : problem_.alternatives[node]) {
      const bool is_chosen = run.plan.chosen(node) == alternative;
      add({.drop = !is_chosen, .node = node, .choice = is_chosen ? node : alternative}, found);
    }
  }
  return found;
}

std::vector<Move> Moves::keeps_with_room(const SimulatedRun& run, int64_t limit_bytes) const {
  std::vector<int64_t> slots(problem_.num_slots() + 1, 0);
  const auto& steps = run.schedule.steps;
  for (size_t i = 0; i < steps.size(); ++i)
    slots[steps[i].slot] = std::max(slots[steps[i].slot], run.step_bytes[i]);
  const RangeMaximum peak(std::move(slots));
  auto keeps = candidates(run, limit_bytes);
  std::erase_if(keeps, [&](const Move& move) {
    const bool has_room =
        move.value < 0 ||
        peak.of(move.slot + 1, move.until) + problem_.value_bytes(move.value) <= limit_bytes;
    return move.drop || !has_room;
  });
  return keeps;
}

}  // namespace aten_recompute
