#include "planner/search/local_search.h"

#include <algorithm>
#include <limits>
#include <queue>
#include <stdexcept>
#include <unordered_map>

namespace aten_recompute {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
// A plan may have this many times the steps without recomputation. The plan that drops everything
// has up to 50 times as many in a deep network, and build_up() must be able to start from it.
constexpr int64_t kMaxSteps = 60;
// Differences in seconds below this are rounding errors.
constexpr double kNothing = 1e-9;

// Returns whether the simulator gave up on the plan.
bool is_endless(const Simulation& simulation) {
  return simulation.excess == kInfinity;
}

uint64_t hash_of_move(const Move& move) {
  uint64_t hash = move.drop;
  for (auto part : {move.value, move.slot, move.node, move.choice}) {
    hash = (hash ^ static_cast<uint32_t>(part)) * 0x9E3779B97F4A7C15ULL;
    hash ^= hash >> 29;
  }
  return hash;
}

// Returns the least number from which on `holds`, by bisection. It must hold for `enough`.
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

// Returns the fewest first, or last, moves of a group that fit. All together must fit.
std::span<const Move> fewest(std::span<const Move> moves, bool first, const auto& fits) {
  const auto count =
      least(moves.size(), [&](size_t count) { return fits(part_of(moves, first, count)); });
  return part_of(moves, first, count);
}

// Returns the most first, or last, items of a group that fit. All together must not fit.
template <typename T>
std::span<const T> most(std::span<const T> all, bool first, const auto& fits) {
  const auto count =
      least(all.size(), [&](size_t count) { return !fits(part_of(all, first, count)); });
  return part_of(all, first, count - 1);
}

}  // namespace

// A candidate of a queue that computes a rate again only when the candidate has come to the top,
// because rates change little from one accepted candidate to the next.
struct LocalSearch::Candidate {
  double rate;
  int64_t rated_at;  // the number of candidates that had been accepted by then
  size_t index;
  bool operator<(const Candidate& other) const {
    return rate != other.rate ? rate < other.rate : index > other.index;
  }
};

// Moves that are made together.
struct LocalSearch::Group {
  uint64_t id = 0;
  std::vector<Move> moves;
};

LocalSearch::LocalSearch(Simulator& simulator, const Moves& moves, ParetoArchive& archive,
                         uint64_t seed)
    : simulator_(simulator),
      moves_(moves),
      problem_(simulator.problem()),
      archive_(archive),
      random_(seed) {
  allow_steps(kMaxSteps);
}

void LocalSearch::allow_steps(int64_t factor) {
  max_steps_ = factor * simulator_.base_steps();
  simulator_.set_max_steps(max_steps_);
}

Simulation LocalSearch::run(const RetentionPlan& plan, int64_t limit_bytes) {
  const auto simulation = simulator_.run(plan, limit_bytes);
  num_steps_ +=
      is_endless(simulation) ? max_steps_ : static_cast<int64_t>(simulator_.steps().size());
  return simulation;
}

// Returns the simulator's last run, which must have been of `plan`.
const SimulatedRun& LocalSearch::last_run_of(const RetentionPlan& plan) const {
  const auto& run = simulator_.last_run();
  if (run.plan != plan)
    throw std::logic_error("aten_recompute: the last simulated plan is another one");
  return run;
}

Simulation LocalSearch::simulate(const RetentionPlan& plan, int64_t limit_bytes) {
  const auto simulation = run(plan, limit_bytes);
  if (!is_endless(simulation))
    archive_.offer(plan, simulation);
  return simulation;
}

// Simulates the plan with the moves applied, and leaves it as it was.
Simulation LocalSearch::attempt(RetentionPlan& plan, std::span<const Move> moves,
                                int64_t limit_bytes) {
  const auto undo = apply_all(plan, moves);
  const auto simulation = simulate(plan, limit_bytes);
  apply_all(plan, undo);
  return simulation;
}

// Returns groups of the drops, or of the keeps, among `moves`. With `single` each move is a group
// of its own. Otherwise moves of equal blocks form a group, and every other one of them another
// group, because blocks that are recomputed two at a time need what lies between them.
std::vector<LocalSearch::Group> LocalSearch::groups(std::span<const Move> moves, bool drop,
                                                    bool single) const {
  std::vector<Group> found;
  std::unordered_map<uint64_t, size_t> places;
  for (const auto& move : moves) {
    if (move.drop != drop)
      continue;
    if (single) {
      found.push_back({hash_of_move(move), {move}});
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
  plan.simulation = simulate(plan.retention, limit_bytes);
  Rates rates;
  while (plan.simulation.excess > 0.0 && reduce_once(plan, limit_bytes, single, rates, end)) {
  }
}

// Accepts the group with the best rate. Returns false if no group helps, or if none was found
// before `end` steps.
bool LocalSearch::reduce_once(Plan& plan, int64_t limit_bytes, bool single, Rates& rates,
                              int64_t end) {
  const auto& run = last_run_of(plan.retention);
  const auto candidates = groups(moves_.candidates(run, limit_bytes), /*drop=*/true, single);
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
    simulation = attempt(plan.retention, group.moves, limit_bytes);
    const double gain = plan.simulation.excess - simulation.excess;
    const double cost = simulation.recompute_seconds - plan.simulation.recompute_seconds;
    candidate.rate = std::max(0.0, gain / std::max(cost, kNothing));
    candidate.rated_at = 1;
    rates[group.id] = candidate.rate;
    queue.push(candidate);
  }
  return false;
}

// Applies the moves. If they are more than `enough`, as few of them as bring the plan under the
// limit.
void LocalSearch::accept_drops(Plan& plan, std::span<const Move> moves, bool enough,
                               int64_t limit_bytes) {
  if (enough && moves.size() > 1) {
    const auto fits = [&](std::span<const Move> part) {
      return attempt(plan.retention, part, limit_bytes).excess == 0.0;
    };
    const auto first = fewest(moves, true, fits);
    const auto last = fewest(moves, false, fits);
    const auto seconds = [&](std::span<const Move> part) {
      return attempt(plan.retention, part, limit_bytes).recompute_seconds;
    };
    moves = seconds(first) <= seconds(last) ? first : last;
  }
  apply_all(plan.retention, moves);
  plan.simulation = simulate(plan.retention, limit_bytes);
}

int64_t LocalSearch::bytes_of(std::span<const int32_t> values) const {
  int64_t bytes = 0;
  for (auto value : values)
    bytes += problem_.value_bytes(value);
  return bytes;
}

// Returns, per kind of values, an upper bound of the seconds that keeping them would save in a
// schedule: in each slot, the time up to the last of them, because nodes after it do not run for
// their sake.
std::vector<double> LocalSearch::most_saved_by_keeping(std::span<const std::vector<int32_t>> kinds,
                                                       const Schedule& schedule) const {
  std::vector<int32_t> kind_of(problem_.num_values(), -1);
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    for (auto value : kinds[kind])
      kind_of[value] = static_cast<int32_t>(kind);
  }
  std::vector<double> saved(kinds.size(), 0.0);
  std::vector<double> in_slot(kinds.size(), 0.0);
  double seconds = 0.0;
  int32_t slot = 0;
  for (const auto& step : schedule.steps) {
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

// The work of build_up(). A value is dropped whenever possible (level 0), before the loss only
// (1), or never (2).
class LocalSearch::BuildUp {
 public:
  // The search's last run must have been of `plan`.
  BuildUp(LocalSearch& search, Plan& plan, int64_t limit_bytes)
      : search_(search),
        plan_(plan),
        limit_bytes_(limit_bytes),
        levels_(search.problem_.num_values(), 0) {
    const auto first_slot_of_backward = search_.problem_.num_served_forward + 1;
    for (auto value : search_.moves_.droppable()) {
      if (!plan_.retention.dropped(value, first_slot_of_backward))
        levels_[value] = plan_.retention.dropped(value, last_slot(value)) ? 1 : 2;
    }
    const auto kinds = search_.moves_.kinds();
    const auto most_saved =
        search_.most_saved_by_keeping(kinds, search_.last_run_of(plan.retention).schedule);
    for (size_t i = 0; i < kinds.size(); ++i) {
      const auto rate = most_saved[i] / static_cast<double>(search_.bytes_of(kinds[i]));
      const int highest = search_.problem_.is_must_recompute(kinds[i][0]) ? 1 : 2;
      for (int level = 1; level <= highest; ++level) {
        queue_.push({rate, -1, rises_.size()});
        rises_.push_back({level, kinds[i]});
      }
    }
  }

  void run(int64_t end) {
    int64_t accepted = 0;
    while (!queue_.empty() && queue_.top().rate > 0.0 && search_.num_steps() < end) {
      auto candidate = queue_.top();
      queue_.pop();
      auto& rise = rises_[candidate.index];
      std::erase_if(rise.values, [&](int32_t value) { return levels_[value] >= rise.level; });
      if (rise.values.empty())
        continue;
      if (candidate.rated_at == accepted) {
        accept(rise);
        ++accepted;
        continue;
      }
      const auto simulation = simulate_what_fits(rise);
      if (rise.values.empty())
        continue;
      candidate.rated_at = accepted;
      candidate.rate = (plan_.simulation.recompute_seconds - simulation.recompute_seconds) /
                       static_cast<double>(search_.bytes_of(rise.values));
      queue_.push(candidate);
    }
  }

 private:
  // Values of one kind that are to be raised to a level.
  struct Rise {
    int level;
    std::vector<int32_t> values;
  };

  void set_level(int32_t value, int level) {
    plan_.retention.set_always(value, level == 0);
    if (level == 1)
      plan_.retention.drop(value, last_slot(value));
  }

  size_t last_slot(int32_t value) const {
    return static_cast<size_t>(search_.moves_.last_slot_of_forward(value));
  }

  // Simulates the plan with the values raised, and leaves it as it was.
  Simulation simulate(std::span<const int32_t> values, int level) {
    for (auto value : values)
      set_level(value, std::max(level, levels_[value]));
    const auto simulation = search_.simulate(plan_.retention, limit_bytes_);
    for (auto value : values)
      set_level(value, levels_[value]);
    return simulation;
  }

  // Removes values that do not fit from the rise. They are given up for good, because with more
  // kept they will fit no better. Returns the simulation of the rest.
  Simulation simulate_what_fits(Rise& rise) {
    const auto simulation = simulate(rise.values, rise.level);
    if (simulation.excess <= 0.0)
      return simulation;
    const auto fits = [&](std::span<const int32_t> part) {
      return simulate(part, rise.level).excess == 0.0;
    };
    rise.values.resize(most<int32_t>(rise.values, /*first=*/true, fits).size());
    return rise.values.empty() ? simulation : simulate(rise.values, rise.level);
  }

  void accept(const Rise& rise) {
    for (auto value : rise.values) {
      levels_[value] = std::max(rise.level, levels_[value]);
      set_level(value, levels_[value]);
    }
    plan_.simulation = search_.simulate(plan_.retention, limit_bytes_);
  }

  LocalSearch& search_;
  Plan& plan_;
  int64_t limit_bytes_;
  std::vector<int> levels_;  // per value
  std::vector<Rise> rises_;
  std::priority_queue<Candidate> queue_;
};

void LocalSearch::build_up(Plan& plan, int64_t limit_bytes, int64_t steps) {
  const auto end = num_steps_ + steps;
  allow_steps(kMaxSteps);
  plan.simulation = simulate(plan.retention, limit_bytes);
  if (plan.simulation.excess <= 0.0)
    BuildUp(*this, plan, limit_bytes).run(end);
}

void LocalSearch::set_checkpoints(const Checkpoints& checkpoints, const RetentionPlan& inner,
                                  int64_t limit_bytes) {
  allow_steps(kMaxSteps);
  if (is_endless(run(checkpoints.keep_all(inner), limit_bytes)))
    return;
  const auto plan =
      checkpoints.schedule(inner, checkpoints.needs(simulator_.last_run()), limit_bytes);
  num_steps_ += simulator_.base_steps();  // schedule() takes about as long
  if (!plan)
    return;
  const auto simulation = run(*plan, limit_bytes);
  const auto* known = archive_.fastest(simulation.peak_bytes);
  if (!is_endless(simulation) &&
      (known == nullptr ||
       simulation.recompute_seconds < known->simulation.recompute_seconds - kNothing))
    simulate(moves_.canonicalize(last_run_of(*plan)), limit_bytes);
}

void LocalSearch::canonicalize(Plan& plan) {
  allow_steps(kMaxSteps);
  if (!is_endless(run(plan.retention, plan.simulation.peak_bytes)))
    plan.retention = moves_.canonicalize(last_run_of(plan.retention));
}

void LocalSearch::relax(Plan& plan, int64_t limit_bytes, int64_t steps) {
  const auto end = num_steps_ + steps;
  allow_steps(kMaxStepsToImprove);
  plan.simulation = simulate(plan.retention, limit_bytes);
  if (plan.simulation.excess > 0.0)
    return;
  for (const auto& moves : rated_keeps(plan, limit_bytes, end)) {
    const auto tried = attempt(plan.retention, moves, limit_bytes);
    if (tried.excess == 0.0 &&
        tried.recompute_seconds < plan.simulation.recompute_seconds - kNothing) {
      apply_all(plan.retention, moves);
      plan.simulation = tried;
    }
  }
}

// Returns groups of keeps, or as many moves of each as fit, by falling seconds saved per byte.
std::vector<std::vector<Move>> LocalSearch::rated_keeps(Plan& plan, int64_t limit_bytes,
                                                        int64_t end) {
  const auto before = plan.simulation.recompute_seconds;
  const auto fits = [&](std::span<const Move> part) {
    return attempt(plan.retention, part, limit_bytes).excess == 0.0;
  };
  std::vector<std::pair<double, std::vector<Move>>> rated;
  const auto candidates = moves_.keeps_with_room(last_run_of(plan.retention), limit_bytes);
  for (const auto& group : groups(candidates, /*drop=*/false, /*single=*/false)) {
    if (num_steps_ >= end)
      break;
    std::span<const Move> moves = group.moves;
    auto tried = attempt(plan.retention, moves, limit_bytes);
    if (tried.recompute_seconds >= before - kNothing)
      continue;
    if (tried.excess > 0.0) {
      const auto first = most(moves, /*first=*/true, fits);
      moves = first.empty() ? most(moves, /*first=*/false, fits) : first;
      if (moves.empty())
        continue;
      tried = attempt(plan.retention, moves, limit_bytes);
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
