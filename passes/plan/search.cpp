#include "passes/plan/search.h"

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "passes/plan/improve.h"

namespace aten_recompute {
namespace {

constexpr auto kNoLimit = std::numeric_limits<int64_t>::max();
// Plans are looked for under a ladder of limits, each this fraction of the one above.
constexpr double kRung = 0.93;

bool reads_optional(const Problem& problem, int32_t node) {
  const auto inputs = problem.inputs[node];
  return std::any_of(inputs.begin(), inputs.end(), [&](int32_t value) {
    return problem.producer[value] >= 0 && problem.optional[problem.producer[value]] != 0;
  });
}

}  // namespace

struct PlanSearch::State {
  State(const Problem& which, Decisions start, const SearchEffort& effort)
      : problem(which),
        simulator(which),
        moves(which, simulator.droppable()),
        unplanned(std::move(start)),
        lean(which),
        pool(simulator.run(unplanned).peak_bytes),
        improver(simulator, moves, pool) {
    choose_faster_nodes();
    moves.keep_below(simulator.run(unplanned).peak_bytes / 10000);
    for (auto value : moves.droppable()) {
      lean.drop_always(value);
      if (problem.is_must_recompute(value))
        unplanned.drop(value, 0);
    }
    unplanned_peak = improver.simulate(unplanned, kNoLimit).peak_bytes;
    lean_is_usable = improver.simulate(lean, kNoLimit).peak_bytes != kNoLimit;
    explore(std::min(effort.steps, effort.simulations * static_cast<int64_t>(problem.num_nodes)));
  }

  // What is faster and needs nothing that is not kept anyway.
  void choose_faster_nodes() {
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
  }

  void explore(int64_t steps);
  void keep_what_is_cheaper_kept(int64_t steps);
  void go_down(int64_t steps);
  void go_up(int64_t steps);
  void look_for_leaner(int64_t steps);
  void anneal(int64_t steps);

  const Problem& problem;
  Simulator simulator;
  Moves moves;
  Decisions unplanned;
  Decisions lean;
  Pool pool;
  Improver improver;
  int64_t unplanned_peak = 0;
  bool lean_is_usable = false;
  std::vector<int64_t> limits;  // falling; there is a plan under each
  size_t num_reached = 0;       // of them, by reducing
};

// Below the lean plan there is sometimes a leaner one: what comes back at once, and with it what it
// was made of, had better been kept. First by kind, then, as far as `steps` go, one by one.
void PlanSearch::State::keep_what_is_cheaper_kept(int64_t steps) {
  Plan plan{lean, improver.simulate(lean, kNoLimit)};
  const auto try_to_keep = [&](std::span<const int32_t> values) {
    auto kept = plan.decisions;
    for (auto value : values) {
      kept.set_always(value, false);
      if (problem.is_must_recompute(value))
        kept.drop(value, 0);
    }
    const auto tried = improver.simulate(kept, kNoLimit);
    if (tried.peak_bytes < plan.simulation.peak_bytes)
      plan = {std::move(kept), tried};
  };
  const auto end = improver.num_steps() + steps;
  for (const auto& [kind, values] : moves.kinds()) {
    if (improver.num_steps() < end)
      try_to_keep(values);
  }
  plan = {lean, improver.simulate(lean, kNoLimit)};
  for (auto value : moves.droppable()) {
    if (improver.num_steps() < end)
      try_to_keep({&value, 1});
  }
}

void PlanSearch::State::explore(int64_t steps) {
  // Sweeps take some hundred simulations a limit, whatever the number of equal blocks.
  const auto num_nodes = static_cast<int64_t>(problem.num_nodes);
  if (lean_is_usable)
    keep_what_is_cheaper_kept(1000 * num_nodes);
  go_down(5000 * num_nodes);
  go_up(7000 * num_nodes);
  look_for_leaner(steps / 4);
  anneal(steps);
}

// From keeping everything, limit by limit, each from the best plan under the limit before.
void PlanSearch::State::go_down(int64_t steps) {
  const auto end = improver.num_steps() + steps;
  Plan plan{unplanned, {}};
  for (double limit = kRung * static_cast<double>(unplanned_peak); limit >= 1.0; limit *= kRung) {
    const auto bytes = static_cast<int64_t>(limit);
    improver.reduce(plan, bytes, end - improver.num_steps());
    const auto* best = pool.fastest(bytes);
    if (best == nullptr)
      return;
    if (plan.simulation.excess == 0.0)
      num_reached = limits.size() + 1;
    limits.push_back(bytes);
    plan = *best;
  }
}

// From letting everything go, limit by limit. Dropping one thing at a time from above leads nowhere
// where what is recomputed needs much that is gone, too.
void PlanSearch::State::go_up(int64_t steps) {
  const auto end = improver.num_steps() + steps;
  Plan grown{lean, {}};
  for (size_t i = limits.size(); i-- > 0;) {
    if (i % 2 != 0)
      continue;
    // Above, single drops lead to enough plans already; in a deep network, this end is out of
    // reach.
    if (i + 4 >= num_reached && lean_is_usable)
      improver.build_up(grown, limits[i], end - improver.num_steps());
    auto plan = *pool.fastest(limits[i]);
    improver.relax(plan, limits[i], (end - improver.num_steps()) / static_cast<int64_t>(i / 4 + 1));
  }
}

// Below where single drops lead, and below the plan that drops everything, too.
void PlanSearch::State::look_for_leaner(int64_t steps) {
  const auto end = improver.num_steps() + steps;
  double distance = 0.93;
  for (int64_t before = -1; before < improver.num_steps() && improver.num_steps() < end;) {
    before = improver.num_steps();
    auto plan = *pool.leanest();
    const auto bytes = plan.simulation.peak_bytes;
    const auto limit = bytes - bytes / 100 - 1;
    improver.reduce(plan, limit, end - improver.num_steps());
    improver.reduce_one_by_one(plan, limit, end - improver.num_steps());
    if (pool.leanest()->simulation.peak_bytes < bytes)
      continue;
    // How far below is best differs; too far, and all looks equally bad.
    distance = distance == 0.93 ? 0.85 : 0.93;
    improver.anneal(plan, static_cast<int64_t>(distance * static_cast<double>(bytes)), steps / 8);
  }
}

// Upwards, so that what was found under a limit serves those above it. Where plans are slow, there
// is most to gain.
void PlanSearch::State::anneal(int64_t steps) {
  // A few long searches find more than many short ones.
  constexpr size_t kEnough = 1000;  // simulations
  const auto affordable = static_cast<size_t>(steps) / (kEnough * (problem.num_nodes + 1)) + 1;
  const size_t every = limits.size() / affordable + 1;
  double total = 0.0;
  for (size_t i = 0; i < limits.size(); i += every)
    total += pool.fastest(limits[i])->simulation.recompute_seconds;
  if (total <= 0.0)
    return;
  for (size_t i = limits.size(); i-- > 0;) {
    if (i % every != 0)
      continue;
    const auto plan = *pool.fastest(limits[i]);
    const auto share = plan.simulation.recompute_seconds / total;
    improver.anneal(plan, limits[i], static_cast<int64_t>(share * static_cast<double>(steps)));
  }
}

PlanSearch::PlanSearch(const Problem& problem, const Decisions& unplanned,
                       const SearchEffort& effort)
    : state_(std::make_unique<State>(problem, unplanned, effort)) {}

PlanSearch::~PlanSearch() = default;

int64_t PlanSearch::smallest_peak_bytes() const {
  return state_->pool.leanest()->simulation.peak_bytes;
}

std::optional<Plan> PlanSearch::fastest(int64_t peak_bytes) {
  const auto* plan = state_->pool.fastest(peak_bytes);
  return plan == nullptr ? std::nullopt : std::optional(*plan);
}

Plan PlanSearch::leanest(double seconds) {
  const auto* plan = state_->pool.leanest(seconds);
  return plan != nullptr ? *plan : *state_->pool.fastest(state_->unplanned_peak);
}

std::vector<Plan> search_frontier(const Problem& problem, const Decisions& unplanned,
                                  const SearchEffort& effort) {
  PlanSearch search(problem, unplanned, effort);
  return search.state_->pool.frontier();
}

}  // namespace aten_recompute
