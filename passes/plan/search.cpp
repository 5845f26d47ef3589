#include "passes/plan/search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <queue>
#include <tuple>

namespace aten_recompute {
namespace {

// Limits are looked for on a ladder of rungs, each this fraction of the one above. A budget takes
// the best of the first rungs below it: plans of neighbouring rungs are found independently, and a
// lower one may be the faster.
constexpr double kRung = 0.98;
constexpr size_t kWindow = 4;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Xorshift64*: the standard library's distributions differ between implementations.
class Random {
 public:
  size_t below(size_t bound) { return static_cast<size_t>((next() >> 11) % bound); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1DULL;
  }
  uint64_t state_ = 0x9E3779B97F4A7C15ULL;
};

// One thing about a plan changed: a value is let go in a slot or kept (value >= 0), or another node
// runs in a node's place (node >= 0), or both.
struct Move {
  int32_t value = -1;
  int32_t slot = 0;
  bool drop = false;
  int32_t node = -1;
  int32_t choice = -1;

  using Key = std::tuple<int32_t, int32_t, bool, int32_t, int32_t>;
  Key key() const { return {value, slot, drop, node, choice}; }
};

// Makes a move; says what undoes it.
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

class Search {
 public:
  explicit Search(const Problem& problem) : problem_(problem), simulator_(problem) {
    is_droppable_.assign(problem.num_values(), 0);
    keep_below(0);
    for (size_t node = problem.num_forward; node < problem.num_nodes; ++node) {
      if (!problem.alternatives[node].empty())
        with_alternatives_.push_back(static_cast<int32_t>(node));
    }
  }

  Simulation simulate(const Decisions& decisions, int64_t limit_bytes) {
    return simulator_.run(decisions, limit_bytes);
  }

  // Values of fewer bytes are not worth a decision: statistics, generator states.
  void keep_below(int64_t bytes) {
    std::fill(is_droppable_.begin(), is_droppable_.end(), 0);
    droppable_.clear();
    for (auto value : simulator_.droppable()) {
      if (problem_.value_bytes(value) < bytes && !problem_.is_must_recompute(value))
        continue;
      is_droppable_[value] = 1;
      droppable_.push_back(value);
    }
  }

  const std::vector<int32_t>& droppable() const { return droppable_; }

  void reduce(Plan& plan, int64_t limit_bytes);
  void build_up(Plan& plan, int64_t limit_bytes);
  void relax(Plan& plan, int64_t limit_bytes);
  void anneal(Plan& plan, int64_t limit_bytes, int64_t simulations);

 private:
  std::vector<Move> moves(const Decisions& decisions, int64_t limit_bytes) const;

  const Problem& problem_;
  Simulator simulator_;
  std::vector<uint8_t> is_droppable_;
  std::vector<int32_t> droppable_;
  std::vector<int32_t> with_alternatives_;  // backward nodes
};

// What the simulator's last run offers: drops of what was kept over a slot that exceeds the limit,
// and keeping what was computed again.
std::vector<Move> Search::moves(const Decisions& decisions, int64_t limit_bytes) const {
  // over[s]: slots below s whose peak exceeds the limit; the forward is slot 0.
  std::vector<int32_t> over(problem_.num_backward() + 3, 0);
  const auto& steps = simulator_.steps();
  const auto& bytes = simulator_.step_bytes();
  for (size_t i = 0; i < steps.size(); ++i) {
    if (bytes[i] > limit_bytes)
      over[steps[i].slot + 1] = 1;
  }
  for (size_t s = 1; s < over.size(); ++s)
    over[s] += over[s - 1];
  std::vector<Move> found;
  for (const auto& gap : simulator_.gaps()) {
    if (!is_droppable_[gap.value])
      continue;
    if (gap.recomputed) {
      if (gap.from == 0 && problem_.is_must_recompute(gap.value))
        continue;
      found.push_back({gap.value, gap.from, false});
    } else if (over[gap.to + 1] > over[gap.from]) {
      found.push_back({gap.value, gap.from, true});
      // Dropped and then made in another way, from something smaller that is kept.
      const auto producer = problem_.producer[gap.value];
      for (auto alternative : problem_.alternatives[producer]) {
        if (decisions.chosen(producer) != alternative)
          found.push_back({gap.value, gap.from, true, producer, alternative});
      }
    }
  }
  for (auto node : with_alternatives_) {
    for (auto alternative : problem_.alternatives[node]) {
      const bool chosen = decisions.chosen(node) == alternative;
      found.push_back({-1, 0, !chosen, node, chosen ? node : alternative});
    }
  }
  return found;
}

// Drops what costs least time per byte of excess, until nothing exceeds the limit or no drop helps.
// Rates change little from one drop to the next: a candidate is simulated again only when it has
// come to the top.
void Search::reduce(Plan& plan, int64_t limit_bytes) {
  struct Candidate {
    double rate;
    bool fresh;
    Move move;
    bool operator<(const Candidate& other) const {
      return rate != other.rate ? rate < other.rate : move.key() > other.move.key();
    }
  };
  std::map<Move::Key, double> rates;  // as last seen
  plan.simulation = simulate(plan.decisions, limit_bytes);
  while (plan.simulation.excess > 0.0) {
    std::priority_queue<Candidate> queue;
    for (const auto& move : moves(plan.decisions, limit_bytes)) {
      if (!move.drop)
        continue;
      const auto known = rates.find(move.key());
      queue.push({known == rates.end() ? kInfinity : known->second, false, move});
    }
    bool accepted = false;
    while (!queue.empty() && !accepted) {
      auto candidate = queue.top();
      queue.pop();
      if (candidate.rate <= 0.0)
        break;
      const auto undo = apply(plan.decisions, candidate.move);
      if (candidate.fresh) {
        accepted = true;
        break;
      }
      const auto tried = simulate(plan.decisions, limit_bytes);
      apply(plan.decisions, undo);
      const double gain = plan.simulation.excess - tried.excess;
      const double cost =
          std::max(tried.recompute_seconds - plan.simulation.recompute_seconds, 1e-9);
      candidate.rate = gain > 0.0 ? gain / cost : 0.0;
      candidate.fresh = true;
      rates[candidate.move.key()] = candidate.rate;
      if (candidate.rate > 0.0)
        queue.push(candidate);
    }
    plan.simulation = simulate(plan.decisions, limit_bytes);
    if (!accepted)
      return;
  }
}

// From the other end: values are let go whenever they can be (level 0), at the end of the forward
// only (1), or never (2). Raises levels as long as nothing exceeds the limit: first those that save
// most time per byte.
void Search::build_up(Plan& plan, int64_t limit_bytes) {
  std::vector<int> level(problem_.num_values(), 0);
  struct Candidate {
    double rate;
    int64_t rated_at;
    int32_t value;
    int to;
    Simulation simulation;
    bool operator<(const Candidate& other) const {
      if (rate != other.rate)
        return rate < other.rate;
      return value != other.value ? value > other.value : to > other.to;
    }
  };
  plan.simulation = simulate(plan.decisions, limit_bytes);
  if (plan.simulation.excess > 0.0)
    return;
  auto set_level = [&](int32_t value, int to) {
    for (size_t slot = 0; slot < plan.decisions.num_slots(); ++slot)
      plan.decisions.set(value, slot, to == 0 || (to == 1 && slot == 0));
  };
  std::priority_queue<Candidate> queue;
  for (auto value : droppable()) {
    for (int to = 1; to <= (problem_.is_must_recompute(value) ? 1 : 2); ++to)
      queue.push({kInfinity, -1, value, to, {}});
  }
  int64_t round = 0;
  while (!queue.empty()) {
    auto candidate = queue.top();
    queue.pop();
    if (candidate.to <= level[candidate.value] || candidate.rate <= 0.0)
      continue;
    if (candidate.rated_at == round) {
      set_level(candidate.value, candidate.to);
      level[candidate.value] = candidate.to;
      plan.simulation = candidate.simulation;
      ++round;
      continue;
    }
    set_level(candidate.value, candidate.to);
    candidate.simulation = simulate(plan.decisions, limit_bytes);
    set_level(candidate.value, level[candidate.value]);
    if (candidate.simulation.excess > 0.0)
      continue;  // with more kept it will fit no better
    candidate.rated_at = round;
    candidate.rate = (plan.simulation.recompute_seconds - candidate.simulation.recompute_seconds) /
                     static_cast<double>(problem_.value_bytes(candidate.value));
    queue.push(candidate);
  }
}

// Keeps again, gap by gap, what saves most time per byte, as long as nothing exceeds the limit.
void Search::relax(Plan& plan, int64_t limit_bytes) {
  plan.simulation = simulate(plan.decisions, limit_bytes);
  bool any = plan.simulation.excess == 0.0;
  while (any) {
    any = false;
    std::vector<std::pair<double, Move>> rated;
    for (const auto& move : moves(plan.decisions, limit_bytes)) {
      if (move.drop)
        continue;
      const auto undo = apply(plan.decisions, move);
      const auto tried = simulate(plan.decisions, limit_bytes);
      apply(plan.decisions, undo);
      const double saved = plan.simulation.recompute_seconds - tried.recompute_seconds;
      const auto bytes = move.value < 0 ? 1 : problem_.value_bytes(move.value);
      if (tried.excess == 0.0 && saved > 0.0)
        rated.push_back({saved / static_cast<double>(bytes), move});
    }
    std::sort(rated.begin(), rated.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second.key() < b.second.key();
    });
    for (const auto& [rate, move] : rated) {
      const auto undo = apply(plan.decisions, move);
      const auto tried = simulate(plan.decisions, limit_bytes);
      if (tried.excess == 0.0 && tried.recompute_seconds < plan.simulation.recompute_seconds) {
        plan.simulation = tried;
        any = true;
      } else {
        apply(plan.decisions, undo);
      }
    }
    plan.simulation = simulate(plan.decisions, limit_bytes);
  }
}

// Simulated annealing (Kirkpatrick et al., 1983) around a plan that fits. Plans over the limit may
// be passed through, at a price.
void Search::anneal(Plan& plan, int64_t limit_bytes, int64_t simulations) {
  const double base = problem_.base_seconds();
  const double hot = 2e-3 * base;
  const double cold = 2e-6 * base;
  const double price = 0.3 * base / static_cast<double>(std::max<int64_t>(1, limit_bytes));
  auto energy = [&](const Simulation& s) { return s.recompute_seconds + price * s.excess; };

  Random random;
  Plan current = plan;
  current.simulation = simulate(current.decisions, limit_bytes);
  auto offered = moves(current.decisions, 0);
  std::vector<Move> applied;  // what undoes them
  for (int64_t i = 0; i < simulations && !offered.empty(); ++i) {
    const double temperature =
        hot * std::pow(cold / hot, static_cast<double>(i) / static_cast<double>(simulations));
    applied.clear();
    for (size_t k = 0; k < 1 + random.below(3); ++k) {
      const auto move = offered[random.below(offered.size())];
      applied.push_back(apply(current.decisions, move));
    }
    const auto tried = simulate(current.decisions, limit_bytes);
    const double worse = energy(tried) - energy(current.simulation);
    if (worse <= 0.0 || random.unit() < std::exp(-worse / temperature)) {
      current.simulation = tried;
      offered = moves(current.decisions, 0);
      if (tried.excess == 0.0 && tried.recompute_seconds < plan.simulation.recompute_seconds) {
        plan = current;
      }
    } else {
      for (auto undo = applied.rbegin(); undo != applied.rend(); ++undo)
        apply(current.decisions, *undo);
    }
  }
}

}  // namespace

namespace {

bool reads_optional(const Problem& problem, int32_t node) {
  const auto inputs = problem.inputs[node];
  return std::any_of(inputs.begin(), inputs.end(), [&](int32_t value) {
    return problem.producer[value] >= 0 && problem.optional[problem.producer[value]] != 0;
  });
}

}  // namespace

struct PlanSearch::State {
  State(const Problem& which, Decisions start, const SearchEffort& how_much)
      : problem(which), search(which), unplanned(std::move(start)), effort(how_much), lean(which) {
    constexpr auto kNoLimit = std::numeric_limits<int64_t>::max();
    // What is faster and needs nothing that is not kept anyway.
    for (size_t node = 0; node < problem.num_forward; ++node) {
      auto fastest = static_cast<int32_t>(node);
      for (auto alternative : problem.alternatives[node]) {
        if (!reads_optional(problem, alternative) &&
            problem.seconds[alternative] < problem.seconds[fastest]) {
          fastest = alternative;
        }
      }
      unplanned.choose(static_cast<int32_t>(node), fastest);
      lean.choose(static_cast<int32_t>(node), fastest);
    }
    search.keep_below(search.simulate(unplanned, kNoLimit).peak_bytes / 10000);
    for (auto value : search.droppable()) {
      lean.drop_always(value);
      if (problem.is_must_recompute(value))
        unplanned.drop(value, 0);
    }
    unplanned_peak = search.simulate(unplanned, kNoLimit).peak_bytes;
    lean_simulation = search.simulate(lean, kNoLimit);
  }

  // What is found for a rung depends on nothing but the problem.
  const Plan& at(size_t rung) {
    if (const auto found = plans.find(rung); found != plans.end())
      return found->second;
    const auto limit = rung_bytes(rung);
    Plan best{lean, lean_simulation};
    Plan plan{unplanned, {}};
    search.reduce(plan, limit);
    search.relax(plan, limit);
    if (plan.simulation.excess == 0.0) {
      best = plan;
    } else {
      // Dropping one value at a time no longer leads there: from the other end, then.
      plan.decisions = lean;
      search.build_up(plan, limit);
      search.relax(plan, limit);
      if (plan.simulation.excess == 0.0)
        best = plan;
    }
    search.anneal(best, limit, effort.simulations);
    search.relax(best, limit);
    return plans.emplace(rung, std::move(best)).first->second;
  }

  // Below the lean plan there is sometimes a leaner one: what comes back at once, and with it what
  // it was made of, had better been kept.
  const Plan& leanest() {
    if (found_leanest)
      return *found_leanest;
    Plan best{lean, lean_simulation};
    for (auto value : search.droppable()) {
      auto kept = best.decisions;
      for (size_t slot = problem.is_must_recompute(value); slot < kept.num_slots(); ++slot)
        kept.keep(value, slot);
      const auto tried = search.simulate(kept, 0);
      if (tried.peak_bytes < best.simulation.peak_bytes)
        best = {std::move(kept), tried};
    }
    Plan plan{unplanned, search.simulate(unplanned, 0)};
    while (plan.simulation.peak_bytes >= best.simulation.peak_bytes) {
      const auto before = plan.simulation.peak_bytes;
      search.reduce(plan, before - 1);
      if (plan.simulation.peak_bytes >= before)
        break;
    }
    if (plan.simulation.peak_bytes < best.simulation.peak_bytes)
      best = plan;
    plan = at(last_rung());
    for (auto before = std::numeric_limits<int64_t>::max(); plan.simulation.peak_bytes < before;) {
      if (plan.simulation.peak_bytes < best.simulation.peak_bytes)
        best = plan;
      before = plan.simulation.peak_bytes;
      search.reduce(plan, before - before / 100 - 1);
    }
    found_leanest = std::move(best);
    return *found_leanest;
  }

  int64_t rung_bytes(size_t rung) const {
    return std::max(lean_simulation.peak_bytes,
                    static_cast<int64_t>(static_cast<double>(unplanned_peak) *
                                         std::pow(kRung, static_cast<double>(rung))));
  }
  size_t last_rung() const {
    size_t rung = 0;
    while (rung_bytes(rung) > lean_simulation.peak_bytes)
      ++rung;
    return rung;
  }

  const Problem& problem;
  Search search;
  Decisions unplanned;
  SearchEffort effort;
  Decisions lean;
  int64_t unplanned_peak = 0;
  Simulation lean_simulation;
  std::map<size_t, Plan> plans;
  std::optional<Plan> found_leanest;
};

PlanSearch::PlanSearch(const Problem& problem, const Decisions& unplanned,
                       const SearchEffort& effort)
    : state_(std::make_unique<State>(problem, unplanned, effort)) {}

PlanSearch::~PlanSearch() = default;

int64_t PlanSearch::smallest_peak_bytes() const {
  return std::min(state_->unplanned_peak, state_->leanest().simulation.peak_bytes);
}

std::optional<Plan> PlanSearch::fastest(int64_t peak_bytes) {
  if (peak_bytes >= state_->unplanned_peak) {
    return Plan{state_->unplanned, state_->search.simulate(state_->unplanned, peak_bytes)};
  }
  if (peak_bytes < state_->lean_simulation.peak_bytes) {
    const auto& leanest = state_->leanest();
    if (peak_bytes < leanest.simulation.peak_bytes)
      return std::nullopt;
    return leanest;
  }
  size_t rung = 0;
  while (state_->rung_bytes(rung) > peak_bytes)
    ++rung;
  const Plan* best = nullptr;
  for (size_t i = rung; i < rung + kWindow; ++i) {
    const auto& plan = state_->at(i);
    if (best == nullptr || plan.simulation.recompute_seconds < best->simulation.recompute_seconds) {
      best = &plan;
    }
  }
  return *best;
}

Plan PlanSearch::leanest(double seconds) {
  // Time rises as the limit falls, so a bisection over the rungs finds the last that is fast
  // enough.
  size_t fits = 0;
  size_t too_slow = state_->last_rung() + 1;
  while (too_slow - fits > 1) {
    const auto middle = (fits + too_slow) / 2;
    (state_->at(middle).simulation.recompute_seconds <= seconds ? fits : too_slow) = middle;
  }
  if (fits == 0)
    return {state_->unplanned, state_->search.simulate(state_->unplanned, state_->unplanned_peak)};
  return state_->at(fits);
}

std::vector<Plan> search_frontier(const Problem& problem, const Decisions& unplanned,
                                  const SearchEffort& effort) {
  PlanSearch search(problem, unplanned, effort);
  std::vector<Plan> plans;
  auto offer = [&](const Plan& plan) {
    while (!plans.empty() &&
           plans.back().simulation.recompute_seconds >= plan.simulation.recompute_seconds) {
      plans.pop_back();
    }
    if (plans.empty() || plan.simulation.peak_bytes < plans.back().simulation.peak_bytes)
      plans.push_back(plan);
  };
  offer(*search.fastest(std::numeric_limits<int64_t>::max()));
  for (size_t rung = 1; rung <= search.state_->last_rung(); ++rung)
    offer(search.state_->at(rung));
  return plans;
}

}  // namespace aten_recompute
