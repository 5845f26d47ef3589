#include "passes/plan/moves.h"

namespace aten_recompute {

Move apply(Decisions& decisions, const Move& move) {
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

std::map<uint64_t, std::vector<int32_t>> Moves::kinds() const {
  std::map<uint64_t, std::vector<int32_t>> kinds;
  for (auto value : droppable_)
    kinds[classes_.of_value[value]].push_back(value);
  return kinds;
}

uint64_t Moves::group_of(const Move& move, int32_t to) const {
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
    add(node_at(to));
  }
  if (move.node >= 0) {
    add(classes_.of_node[move.node]);
    add(classes_.of_node[move.choice]);
  }
  return group;
}

std::vector<Move> Moves::offered(const Simulator& simulator, const Decisions& decisions,
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
  const auto add = [&](Move move, int32_t to) {
    move.group = group_of(move, to);
    found.push_back(move);
  };
  for (const auto& gap : simulator.gaps()) {
    if (!is_droppable_[gap.value])
      continue;
    if (gap.recomputed) {
      if (gap.from == 0 && problem_.is_must_recompute(gap.value))
        continue;
      add({gap.value, gap.from, false}, gap.to);
    } else if (over[gap.to + 1] > over[gap.from]) {
      add({gap.value, gap.from, true}, gap.to);
      // Dropped and then made in another way, from something smaller that is kept.
      const auto producer = problem_.producer[gap.value];
      for (auto alternative : problem_.alternatives[producer]) {
        if (decisions.chosen(producer) != alternative)
          add({gap.value, gap.from, true, producer, alternative}, gap.to);
      }
    }
  }
  for (auto node : with_alternatives_) {
    for (auto alternative : problem_.alternatives[node]) {
      const bool chosen = decisions.chosen(node) == alternative;
      add({-1, 0, !chosen, node, chosen ? node : alternative}, 0);
    }
  }
  return found;
}

}  // namespace aten_recompute
