#include "planner/search/local_search.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <unordered_map>

namespace aten_recompute {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Times the steps of a plan that computes nothing again. The plan that drops everything has up to
// 50 times as many in a deep network, and something may have to be built upon it.
constexpr int64_t kMaxSteps = 60;
// Differences below this are rounding: a group that saves nothing is not worth keeping.
constexpr double kNothing = 1e-9;

// The simulator gave up on it.
bool is_endless(const Simulation& simulation) {
  return simulation.excess == kInfinity;
}

uint64_t hash_of(const Move& move) {
  uint64_t hash = move.drop;
  for (auto part : {move.value, move.slot, move.node, move.choice}) {
    hash = (hash ^ static_cast<uint32_t>(part)) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

// A candidate of a queue whose rates are looked at again only when it has come to the top: they
// change little from one accepted candidate to the next.
struct Candidate {
  double rate;
  int64_t rated_at;  // how much had been accepted
  size_t index;
  bool operator<(const Candidate& other) const {
    return rate != other.rate ? rate < other.rate : index > other.index;
  }
};

// The least number for which `holds`, which it is known to do for `enough` and all between.
size_t least(size_t enough, const auto& holds) {
  size_t too_few = 0;
  while (enough - too_few > 1) {
    const auto middle = (too_few + enough) / 2;
    (holds(middle) ? enough : too_few) = middle;
  }
  return enough;
}

template <typename T>
std::span<const T> part_of(std::span<const T> all, bool first, size_t count) {
  return first ? all.first(count) : all.last(count);
}

// The first or last moves of a group: as few as bring what exceeds the limit to nothing.
std::span<const Move> fewest(std::span<const Move> moves, bool first, const auto& fits) {
  const auto count =
      least(moves.size(), [&](size_t count) { return fits(part_of(moves, first, count)); });
  return part_of(moves, first, count);
}

// The first or last of a group: as many as fit, which is known not to be all.
template <typename T>
std::span<const T> most(std::span<const T> all, bool first, const auto& fits) {
  const auto count =
      least(all.size(), [&](size_t count) { return !fits(part_of(all, first, count)); });
  return part_of(all, first, count - 1);
}

}  // namespace

// Moves that are made together.
struct LocalSearch::Group {
  uint64_t id = 0;
  std::vector<Move> moves;
};

LocalSearch::LocalSearch(Simulator& simulator, const Moves& moves, ParetoArchive& pool,
                         uint64_t seed)
    : simulator_(simulator),
      moves_(moves),
      problem_(simulator.problem()),
      pool_(pool),
      random_(seed) {
  allow_steps(kMaxSteps);
}

void LocalSearch::allow_steps(int64_t factor) {
  max_steps_ = factor * simulator_.base_steps();
  simulator_.set_max_steps(max_steps_);
}

Simulation LocalSearch::run(const RetentionPlan& decisions, int64_t limit_bytes) {
  const auto simulation = simulator_.run(decisions, limit_bytes);
  num_steps_ +=
      is_endless(simulation) ? max_steps_ : static_cast<int64_t>(simulator_.steps().size());
  return simulation;
}

Simulation LocalSearch::simulate(const RetentionPlan& decisions, int64_t limit_bytes) {
  const auto simulation = run(decisions, limit_bytes);
  if (!is_endless(simulation))
    pool_.offer(decisions, simulation);
  return simulation;
}

Simulation LocalSearch::attempt(RetentionPlan& decisions, std::span<const Move> moves,
                                int64_t limit_bytes) {
  const auto undo = apply_all(decisions, moves);
  const auto simulation = simulate(decisions, limit_bytes);
  apply_all(decisions, undo);
  return simulation;
}

// What the last run, of `decisions`, offers, in the order of the values. `single`: each by itself;
// else by kind, and of each kind every other one as well, as blocks recomputed two at a time need
// what stands between them.
std::vector<LocalSearch::Group> LocalSearch::groups(std::span<const Move> moves, bool drop,
                                                    bool single) const {
  std::vector<Group> found;
  std::unordered_map<uint64_t, size_t> places;
  for (const auto& move : moves) {
    if (move.drop != drop)
      continue;
    if (single) {
      found.push_back({hash_of(move), {move}});
      continue;
    }
    const auto [place, added] = places.emplace(move.group, found.size());
    if (added)
      found.push_back({move.group, {}});
    found[place->second].moves.push_back(move);
  }
  for (auto& group : found) {
    std::sort(group.moves.begin(), group.moves.end(),
              [](const Move& a, const Move& b) { return a.key() < b.key(); });
  }
  const auto num_kinds = found.size();
  for (size_t i = 0; i < num_kinds; ++i) {
    if (found[i].moves.size() < 4)
      continue;
    Group every_other{found[i].id + 1, {}};
    for (size_t k = 1; k < found[i].moves.size(); k += 2)
      every_other.moves.push_back(found[i].moves[k]);
    found.push_back(std::move(every_other));
  }
  return found;
}

void LocalSearch::reduce(Plan& plan, int64_t limit_bytes, int64_t steps) {
  reduce_by(plan, limit_bytes, /*single=*/false, steps);
}

void LocalSearch::reduce_one_by_one(Plan& plan, int64_t limit_bytes, int64_t steps) {
  reduce_by(plan, limit_bytes, /*single=*/true, steps);
}

void LocalSearch::reduce_by(Plan& plan, int64_t limit_bytes, bool single, int64_t steps) {
  allow_steps(kMaxStepsToImprove);
  const auto end = num_steps_ + steps;
  plan.simulation = simulate(plan.decisions, limit_bytes);
  Rates rates;
  while (plan.simulation.excess > 0.0 && reduce_once(plan, limit_bytes, single, rates, end)) {
  }
}

// Accepts the group that brings most; false if none brings anything, or not before `end` steps.
bool LocalSearch::reduce_once(Plan& plan, int64_t limit_bytes, bool single, Rates& rates,
                              int64_t end) {
  // The plan's own run is the simulator's last.
  const auto candidates =
      groups(moves_.candidates(simulator_, plan.decisions, limit_bytes), /*drop=*/true, single);
  std::priority_queue<Candidate> queue;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const auto known = rates.find(candidates[i].id);
    queue.push({known == rates.end() ? kInfinity : known->second, 0, i});
  }
  std::vector<Simulation> tried(candidates.size());
  while (!queue.empty() && queue.top().rate > 0.0 && num_steps_ < end) {
    auto candidate = queue.top();
    queue.pop();
    const auto& group = candidates[candidate.index];
    auto& simulation = tried[candidate.index];
    if (candidate.rated_at > 0) {
      accept_drops(plan, group.moves, simulation.excess == 0.0, limit_bytes);
      return true;
    }
    simulation = attempt(plan.decisions, group.moves, limit_bytes);
    const double gain = plan.simulation.excess - simulation.excess;
    const double cost = simulation.recompute_seconds - plan.simulation.recompute_seconds;
    candidate.rate = std::max(0.0, gain / std::max(cost, kNothing));
    candidate.rated_at = 1;
    rates[group.id] = candidate.rate;
    queue.push(candidate);
  }
  return false;
}

// Of a group that is more than enough, only as much as it takes.
void LocalSearch::accept_drops(Plan& plan, std::span<const Move> moves, bool enough,
                               int64_t limit_bytes) {
  if (enough && moves.size() > 1) {
    const auto fits = [&](std::span<const Move> part) {
      return attempt(plan.decisions, part, limit_bytes).excess == 0.0;
    };
    const auto first = fewest(moves, true, fits);
    const auto last = fewest(moves, false, fits);
    const auto seconds = [&](std::span<const Move> part) {
      return attempt(plan.decisions, part, limit_bytes).recompute_seconds;
    };
    moves = seconds(first) <= seconds(last) ? first : last;
  }
  apply_all(plan.decisions, moves);
  plan.simulation = simulate(plan.decisions, limit_bytes);
}

// Of one kind of values: raising to a level. Values are let go whenever they can be (level 0), at
// the end of the forward only (1), or never (2).
struct LocalSearch::Rise {
  int level;
  std::vector<int32_t> values;
};

int64_t LocalSearch::bytes_of(std::span<const int32_t> values) const {
  int64_t bytes = 0;
  for (auto value : values)
    bytes += problem_.value_bytes(value);
  return bytes;
}

// Of each kind of values, no less than what keeping them would save in the simulator's last run: of
// each slot the time up to the last of them, as what comes behind is not made for their sake.
std::vector<double> LocalSearch::most_saved_by_keeping(
    std::span<const std::vector<int32_t>> kinds) const {
  std::vector<int32_t> kind_of(problem_.num_values(), -1);
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    for (auto value : kinds[kind])
      kind_of[value] = static_cast<int32_t>(kind);
  }
  std::vector<double> saved(kinds.size(), 0.0);
  std::vector<double> in_slot(kinds.size(), 0.0);
  double seconds = 0.0;
  int32_t slot = 0;
  for (const auto& step : simulator_.steps()) {
    if (step.slot == 0)
      continue;
    if (step.slot != slot) {
      slot = step.slot;
      seconds = 0.0;
      std::fill(in_slot.begin(), in_slot.end(), 0.0);
    }
    seconds += problem_.seconds[step.node];
    const auto outputs = problem_.outputs[step.node];
    for (size_t k = 0; k < outputs.size(); ++k) {
      const auto kind = kind_of[outputs[k]];
      if (kind < 0 || (step.output_mask & output_bit(k)) == 0)
        continue;
      saved[kind] += seconds - in_slot[kind];
      in_slot[kind] = seconds;
    }
  }
  return saved;
}

void LocalSearch::build_up(Plan& plan, int64_t limit_bytes, int64_t steps) {
  const auto end = num_steps_ + steps;
  allow_steps(kMaxSteps);
  plan.simulation = simulate(plan.decisions, limit_bytes);
  if (plan.simulation.excess > 0.0)
    return;
  std::vector<Rise> rises;
  std::priority_queue<Candidate> queue;
  const auto kinds = moves_.kinds();
  const auto most_saved = most_saved_by_keeping(kinds);
  for (size_t i = 0; i < kinds.size(); ++i) {
    const auto& values = kinds[i];
    for (int level = 1; level <= (problem_.is_must_recompute(values[0]) ? 1 : 2); ++level) {
      queue.push({most_saved[i] / static_cast<double>(bytes_of(values)), -1, rises.size()});
      rises.push_back({level, values});
    }
  }
  std::vector<int> levels(problem_.num_values(), 0);
  for (auto value : moves_.droppable()) {
    if (!plan.decisions.dropped(value, 1))
      levels[value] = plan.decisions.dropped(value, 0) ? 1 : 2;
  }
  const auto set_level = [&](int32_t value, int level) {
    plan.decisions.set_always(value, level == 0);
    if (level == 1)
      plan.decisions.drop(value, 0);
  };
  const auto raised = [&](std::span<const int32_t> values, int level) {
    for (auto value : values)
      set_level(value, std::max(level, levels[value]));
    const auto simulation = simulate(plan.decisions, limit_bytes);
    for (auto value : values)
      set_level(value, levels[value]);
    return simulation;
  };
  int64_t accepted = 0;
  while (!queue.empty() && queue.top().rate > 0.0 && num_steps_ < end) {
    auto candidate = queue.top();
    queue.pop();
    auto& [level, values] = rises[candidate.index];
    std::erase_if(values, [&, level = level](int32_t value) { return levels[value] >= level; });
    if (values.empty())
      continue;
    if (candidate.rated_at == accepted) {
      for (auto value : values) {
        levels[value] = std::max(level, levels[value]);
        set_level(value, levels[value]);
      }
      plan.simulation = simulate(plan.decisions, limit_bytes);
      ++accepted;
      continue;
    }
    auto simulation = raised(values, level);
    if (simulation.excess > 0.0) {
      // With more kept it will fit no better: the rest is given up.
      const auto fits = [&](std::span<const int32_t> part) {
        return raised(part, level).excess == 0.0;
      };
      const auto part = most<int32_t>(values, /*first=*/true, fits);
      values = {part.begin(), part.end()};
      if (values.empty())
        continue;
      simulation = raised(values, level);
    }
    candidate.rated_at = accepted;
    candidate.rate = (plan.simulation.recompute_seconds - simulation.recompute_seconds) /
                     static_cast<double>(bytes_of(values));
    queue.push(candidate);
  }
}

void LocalSearch::set_checkpoints(const Checkpoints& checkpoints, const RetentionPlan& inner,
                                  int64_t limit_bytes) {
  allow_steps(kMaxSteps);
  if (is_endless(run(checkpoints.keep_all(inner), limit_bytes)))
    return;
  const auto plan = checkpoints.schedule(inner, checkpoints.needs(simulator_), limit_bytes);
  num_steps_ += simulator_.base_steps();  // it takes about as long
  if (!plan)
    return;
  const auto simulation = run(*plan, limit_bytes);
  const auto* known = pool_.fastest(simulation.peak_bytes);
  if (!is_endless(simulation) &&
      (known == nullptr ||
       simulation.recompute_seconds < known->simulation.recompute_seconds - kNothing))
    simulate(moves_.canonicalize(simulator_, *plan), limit_bytes);
}

void LocalSearch::make_concise(Plan& plan) {
  allow_steps(kMaxSteps);
  if (!is_endless(run(plan.decisions, plan.simulation.peak_bytes)))
    plan.decisions = moves_.canonicalize(simulator_, plan.decisions);
}

void LocalSearch::relax(Plan& plan, int64_t limit_bytes, int64_t steps) {
  const auto end = num_steps_ + steps;
  allow_steps(kMaxStepsToImprove);
  plan.simulation = simulate(plan.decisions, limit_bytes);
  if (plan.simulation.excess > 0.0)
    return;
  for (const auto& moves : rated_keeps(plan, limit_bytes, end)) {
    const auto tried = attempt(plan.decisions, moves, limit_bytes);
    if (tried.excess == 0.0 &&
        tried.recompute_seconds < plan.simulation.recompute_seconds - kNothing) {
      apply_all(plan.decisions, moves);
      plan.simulation = tried;
    }
  }
}

// Groups to keep, or as many of each as fit, by the time that they save per byte.
std::vector<std::vector<Move>> LocalSearch::rated_keeps(Plan& plan, int64_t limit_bytes,
                                                        int64_t end) {
  const auto before = plan.simulation.recompute_seconds;
  const auto fits = [&](std::span<const Move> part) {
    return attempt(plan.decisions, part, limit_bytes).excess == 0.0;
  };
  std::vector<std::pair<double, std::vector<Move>>> rated;
  const auto candidates = moves_.offered_keeps_with_room(simulator_, plan.decisions, limit_bytes);
  for (const auto& group : groups(candidates, /*drop=*/false, /*single=*/false)) {
    if (num_steps_ >= end)
      break;
    std::span<const Move> moves = group.moves;
    auto tried = attempt(plan.decisions, moves, limit_bytes);
    if (tried.recompute_seconds >= before - kNothing)
      continue;
    if (tried.excess > 0.0) {
      const auto first = most(moves, /*first=*/true, fits);
      moves = first.empty() ? most(moves, /*first=*/false, fits) : first;
      if (moves.empty())
        continue;
      tried = attempt(plan.decisions, moves, limit_bytes);
    }
    int64_t bytes = 1;
    for (const auto& move : moves)
      bytes += move.value < 0 ? 0 : problem_.value_bytes(move.value);
    const auto rate = (before - tried.recompute_seconds) / static_cast<double>(bytes);
    if (rate > 0.0)
      rated.emplace_back(rate, std::vector<Move>(moves.begin(), moves.end()));
  }
  std::stable_sort(rated.begin(), rated.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::vector<Move>> found;
  for (auto& [rate, moves] : rated)
    found.push_back(std::move(moves));
  return found;
}

}  // namespace aten_recompute
