#include "planner/search/search.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <future>
#include <limits>
#include <optional>
#include <span>
#include <system_error>
#include <utility>
#include <vector>

#include "common/progress.h"
#include "planner/search/checkpoints.h"
#include "planner/search/cuts.h"
#include "planner/search/local_search.h"

namespace aten_recompute {
namespace {

constexpr auto kNoLimit = std::numeric_limits<int64_t>::max();
// The search looks for plans under a ladder of limits, each this fraction of the one above.
constexpr double kRung = 0.93;
// Long searches are cut into so many parts, which can run in parallel. It is a constant, so that
// what is found does not depend on the number of threads.
constexpr size_t kParts = 4;

bool reads_optional(const Problem& problem, int32_t node) {
  const auto inputs = problem.inputs[node];
  return std::any_of(inputs.begin(), inputs.end(), [&](int32_t value) {
    return problem.producer[value] >= 0 && problem.optional[problem.producer[value]] != 0;
  });
}

// Runs all tasks on at most `num_threads` threads, the calling thread included. Near a limit of
// memory or of processes no thread may start: then there are fewer.
void run_in_parallel(std::span<const std::function<void()>> tasks, size_t num_threads) {
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    for (size_t i = next++; i < tasks.size(); i = next++)
      tasks[i]();
  };
  std::vector<std::future<void>> others;
  try {
    while (others.size() + 1 < std::min(num_threads, tasks.size()))
      others.push_back(std::async(std::launch::async, work));
  } catch (const std::system_error&) {
  }
  work();
  for (auto& other : others)
    other.get();
}

// The objects with which one task searches. Its plans are merged when the task is done.
struct Searcher {
  Searcher(const Simulator& original, const Moves& moves, const ParetoArchive& known, uint64_t seed)
      : simulator(original), archive(known), local(simulator, moves, archive, seed) {}

  Simulator simulator;
  ParetoArchive archive;
  LocalSearch local;
};

}  // namespace

struct PlanSearch::State {
  State(const Problem& given, RetentionPlan start, const SearchEffort& how_much)
      : problem(given),
        effort(how_much),
        simulator(problem),
        moves(problem, simulator.droppable()),
        unplanned(std::move(start)),
        lean(problem),
        archive(simulator.run(unplanned).peak_bytes) {
    choose_faster_nodes();
    // Small values are not worth a decision, unless there are so many that together they are. Each
    // of the calls that are planned for has its own.
    const auto num_values = static_cast<int64_t>(simulator.droppable().size());
    const auto peak = static_cast<double>(simulator.run(unplanned).peak_bytes);
    moves.ignore_below(static_cast<int64_t>(peak / (1.0 + problem.other_calls)) /
                       std::max<int64_t>(4000, 4 * num_values));
    for (auto value : moves.droppable()) {
      lean.drop_always(value);
      if (problem.is_must_recompute(value))
        unplanned.drop(value, static_cast<size_t>(moves.last_slot_of_forward(value)));
    }
    simulator.drops_only(moves.droppable());
    const auto worth_it = static_cast<int64_t>(effort.steps_per_second * problem.base_seconds());
    explore(std::min({std::max(effort.least_steps, worth_it), effort.most_steps,
                      effort.simulations * simulator.base_steps()}));
    progress.reset();
  }

  // Chooses alternatives that are faster and that read no results of optional nodes.
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

  bool lean_is_usable() const { return lean_simulation.peak_bytes != kNoLimit; }

  using Task = std::function<void(Searcher&)>;
  // `share`: of the whole search, for the progress bar.
  void search(std::span<const Task> tasks, double share = 0.0);
  void explore(int64_t steps);
  void keep_in_lean_plan(Searcher& searcher, bool by_kind, int64_t steps) const;
  void go_down(Searcher& searcher, int64_t steps) const;
  void build_up(Searcher& searcher, int64_t steps) const;
  void look_for_other_checkpoints(int64_t steps);
  void set_checkpoints(Searcher& searcher, int64_t steps) const;
  void relax(Searcher& searcher, size_t first, int64_t steps) const;
  void look_for_leaner(Searcher& searcher, int64_t steps) const;
  std::vector<int64_t> limits_to_anneal(int64_t steps) const;
  std::vector<int64_t> limits_with_faster_plans(const ParetoArchive& known) const;
  void anneal(Searcher& searcher, std::span<const int64_t> chosen, size_t part,
              int64_t steps) const;

  const Problem& problem;
  const SearchEffort effort;
  Simulator simulator;  // each searcher has a copy
  Moves moves;
  RetentionPlan unplanned;
  RetentionPlan lean;  // drops all droppable values whenever it can
  ParetoArchive archive;
  uint64_t num_searchers = 0;
  mutable std::optional<Progress> progress{std::in_place, "search"};  // during explore()
  int64_t unplanned_peak = 0;
  Simulation lean_simulation;
  std::vector<int64_t> limits;   // falling
  std::vector<int64_t> reached;  // the first of them: those for which the sweeps found plans
};

// Runs tasks, each with a copy of the archive, and merges the plans that they found.
void PlanSearch::State::search(std::span<const Task> tasks, double share) {
  std::vector<std::unique_ptr<Searcher>> searchers;
  std::vector<std::function<void()>> runs;
  for (const auto& task : tasks) {
    searchers.push_back(std::make_unique<Searcher>(simulator, moves, archive, ++num_searchers));
    runs.emplace_back([&, share, searcher = searchers.back().get()] {
      task(*searcher);
      progress->advance(share / static_cast<double>(tasks.size()));
    });
  }
  run_in_parallel(runs, effort.num_threads);
  for (const auto& searcher : searchers)
    archive.merge(searcher->archive);
}

// Looks for plans with a smaller peak than `lean`. A value that the backward reads at once, and for
// which it has to recompute others, had better been kept. Tries all values of a kind together, or
// one value after the other.
void PlanSearch::State::keep_in_lean_plan(Searcher& searcher, bool by_kind, int64_t steps) const {
  auto& local = searcher.local;
  Plan plan{lean, lean_simulation};
  const auto try_to_keep = [&](std::span<const int32_t> values) {
    if (local.num_steps() >= steps)
      return;
    auto kept = plan.retention;
    for (auto value : values) {
      kept.set_always(value, false);
      if (problem.is_must_recompute(value))
        kept.drop(value, static_cast<size_t>(moves.last_slot_of_forward(value)));
    }
    const auto tried = local.simulate(kept, kNoLimit);
    if (tried.peak_bytes < plan.simulation.peak_bytes)
      plan = {std::move(kept), tried};
  };
  if (by_kind) {
    for (const auto& values : moves.kinds())
      try_to_keep(values);
  } else {
    for (auto value : moves.droppable())
      try_to_keep({&value, 1});
  }
}

void PlanSearch::State::explore(int64_t steps) {
  const Task begin = [&](Searcher& searcher) {
    unplanned_peak = searcher.local.simulate(unplanned, kNoLimit).peak_bytes;
    lean_simulation = searcher.local.simulate(lean, kNoLimit);
    if (problem.num_served_forward == 0 || lean_is_usable())
      return;
    // The values of an energy and of its forces are a long way from their inputs.
    for (auto value : values_at_cuts(problem, moves.droppable())) {
      lean.set_always(value, false);
      if (problem.is_must_recompute(value))
        lean.drop(value, static_cast<size_t>(moves.last_slot_of_forward(value)));
    }
    lean_simulation = searcher.local.simulate(lean, kNoLimit);
  };
  search({&begin, 1});
  std::vector<Task> tasks;
  if (lean_is_usable()) {
    for (const bool by_kind : {true, false}) {
      tasks.emplace_back(
          [&, by_kind](Searcher& searcher) { keep_in_lean_plan(searcher, by_kind, steps / 16); });
    }
    search(tasks, 0.05);
  }
  for (double limit = kRung * static_cast<double>(unplanned_peak); limit >= 1.0; limit *= kRung)
    limits.push_back(static_cast<int64_t>(limit));
  // This is enough to reach the end of the ladder: sweeps take ten to a hundred simulations for
  // each limit.
  const auto enough = 10'000 * simulator.base_steps();
  tasks = {[&](Searcher& searcher) { go_down(searcher, enough); },
           [&](Searcher& searcher) {
             build_up(searcher, enough);
             look_for_leaner(searcher, steps / 16);
           }};
  search(tasks, 0.15);
  reached = limits;
  while (!reached.empty() && archive.fastest(reached.back()) == nullptr)
    reached.pop_back();
  tasks = {[&](Searcher& searcher) { relax(searcher, 0, steps / 4); },
           [&](Searcher& searcher) { relax(searcher, 2, steps / 4); },
           [&](Searcher& searcher) { look_for_leaner(searcher, steps / 4); }};
  search(tasks, 0.2);
  tasks.clear();
  const auto chosen = limits_to_anneal(steps);
  for (size_t part = 0; part < kParts; ++part)
    tasks.emplace_back([&, part](Searcher& searcher) { anneal(searcher, chosen, part, steps); });
  search(tasks);  // the tasks themselves advance the bar
  look_for_other_checkpoints(steps);
}

// Looks for plans with other checkpoints, and anneals where that found faster ones.
void PlanSearch::State::look_for_other_checkpoints(int64_t steps) {
  const auto known = archive;
  const Task set = [&](Searcher& searcher) { set_checkpoints(searcher, steps / 8); };
  search({&set, 1}, 0.1);
  const auto better = limits_with_faster_plans(known);
  std::vector<Task> tasks;
  for (size_t part = 0; part < std::min(kParts, better.size()); ++part) {
    tasks.emplace_back(
        [&, part](Searcher& searcher) { anneal(searcher, better, part, steps / 4); });
  }
  search(tasks);
}

// Starts from keeping everything and drops values limit by limit, each time from the fastest plan
// under the limit before.
void PlanSearch::State::go_down(Searcher& searcher, int64_t steps) const {
  Plan plan{unplanned, {}};
  for (auto limit : limits) {
    searcher.local.reduce(plan, limit, steps - searcher.local.num_steps());
    const auto* best = searcher.archive.fastest(limit);
    if (best == nullptr)
      return;
    plan = *best;
  }
}

// Starts from dropping everything and keeps values limit by limit. This finds plans where single
// drops lead nowhere, because what is recomputed needs much that was dropped as well.
void PlanSearch::State::build_up(Searcher& searcher, int64_t steps) const {
  if (!lean_is_usable())
    return;
  auto& local = searcher.local;
  const auto end = local.num_steps() + steps;
  Plan plan{lean, {}};
  const auto leanest = searcher.archive.leanest()->simulation.peak_bytes;
  for (size_t i = limits.size(); i-- > 0;) {
    // Single drops find enough plans under higher limits, and in a deep network keeping values up
    // to there would take too long.
    if (i % 2 == 0 && limits[i] >= leanest && limits[i] <= 2 * leanest)
      local.build_up(plan, limits[i], end - local.num_steps());
  }
}

// Tries other checkpoints in slow plans, for the limit of each plan and for larger ones. It goes
// from the smallest limit upwards, so that plans found under a limit serve those above it.
void PlanSearch::State::set_checkpoints(Searcher& searcher, int64_t steps) const {
  constexpr double kSlow = 0.2;  // of the step
  const auto is_slow = [&](const Plan* plan) {
    return plan == nullptr || plan->simulation.recompute_seconds >= kSlow * problem.base_seconds();
  };
  // Checkpoints are for a forward that runs as a whole before the first backward node.
  if (problem.num_served_forward > 0 || !is_slow(searcher.archive.leanest()))
    return;
  const Checkpoints checkpoints(problem, moves.droppable());
  auto& local = searcher.local;
  for (size_t i = limits.size(); i-- > 0 && local.num_steps() < steps;) {
    if (!is_slow(searcher.archive.fastest(limits[i])))
      return;
    const Plan* before = nullptr;
    for (const double more : {1.0, 1.1, 1.2, 1.35, 1.5}) {
      const auto limit = static_cast<int64_t>(more * static_cast<double>(limits[i]));
      const auto* inner = searcher.archive.fastest(limit);
      if (inner != nullptr && inner != before)
        local.set_checkpoints(checkpoints, RetentionPlan(inner->retention), limits[i]);
      before = inner;
    }
  }
}

// Relaxes plans for every fourth limit from `first` on. Goes upwards, so that plans found under a
// limit serve those above it.
void PlanSearch::State::relax(Searcher& searcher, size_t first, int64_t steps) const {
  auto& local = searcher.local;
  for (size_t i = reached.size(); i-- > 0;) {
    if (i % 4 != first)
      continue;
    auto plan = *searcher.archive.fastest(reached[i]);
    const auto share = static_cast<int64_t>(i / 8 + 1);
    local.relax(plan, reached[i], (steps - local.num_steps()) / share);
  }
}

// Looks for plans with a smaller peak than all known ones, by drops and by annealing.
void PlanSearch::State::look_for_leaner(Searcher& searcher, int64_t steps) const {
  auto& local = searcher.local;
  const auto end = local.num_steps() + steps;
  const auto reduce = [&](Plan& plan, int64_t limit) {
    local.reduce(plan, limit, end - local.num_steps());
    local.reduce_one_by_one(plan, limit, end - local.num_steps());
  };
  const auto smallest = [&] { return searcher.archive.leanest()->simulation.peak_bytes; };
  double distance = 0.93;
  int64_t reduced = 0;  // the peak that drops did not reduce further
  for (int64_t before = -1; before < local.num_steps() && local.num_steps() < end;) {
    before = local.num_steps();
    const auto leanest = *searcher.archive.leanest();
    const auto bytes = leanest.simulation.peak_bytes;
    if (bytes != reduced) {
      const auto limit = bytes - bytes / 100 - 1;
      auto plan = leanest;
      reduce(plan, limit);
      if (smallest() == bytes) {
        plan = leanest;
        local.canonicalize(plan);
        reduce(plan, limit);
      }
      if (smallest() < bytes)
        continue;
      reduced = bytes;
    }
    // How far below the peak the limit should be differs between problems. If it is too low, all
    // plans look equally bad.
    distance = distance == 0.93 ? 0.85 : 0.93;
    local.anneal(leanest, static_cast<int64_t>(distance * static_cast<double>(bytes)), steps / 8);
  }
}

// Returns the limits to anneal under, rising. They are dense where plans are slow, because there is
// most to gain, and a limit may occur more than once.
std::vector<int64_t> PlanSearch::State::limits_to_anneal(int64_t steps) const {
  // A few long searches find more than many short ones.
  constexpr int64_t kEnough = 1000;  // simulations
  const auto enough = kEnough * (simulator.base_steps() + 1);
  const auto count = kParts * static_cast<size_t>(steps / (kParts * enough) + 1);
  const auto weight = [&](int64_t limit) {
    return std::clamp(archive.fastest(limit)->simulation.recompute_seconds, 0.0,
                      problem.base_seconds());
  };
  double total = 0.0;
  for (auto limit : reached)
    total += weight(limit);
  std::vector<int64_t> chosen;
  if (total <= 0.0)  // alternatives save as much time as recomputation takes
    return chosen;
  double passed = 0.0;
  for (size_t i = reached.size(); i-- > 0;) {
    passed += weight(reached[i]);
    const auto so_far = static_cast<size_t>(passed / total * static_cast<double>(count) + 0.5);
    while (chosen.size() < std::min(so_far, count))
      chosen.push_back(reached[i]);
  }
  return chosen;
}

// Returns the limits, rising, under which the archive has a plan that is faster by a thousandth
// than the one in `known`, or has the first plan.
std::vector<int64_t> PlanSearch::State::limits_with_faster_plans(const ParetoArchive& known) const {
  std::vector<int64_t> found;
  for (size_t i = limits.size(); i-- > 0;) {
    const auto* now = archive.fastest(limits[i]);
    const auto* before = known.fastest(limits[i]);
    if (now != nullptr && (before == nullptr || now->simulation.recompute_seconds <
                                                    0.999 * before->simulation.recompute_seconds))
      found.push_back(limits[i]);
  }
  return found;
}

// Anneals under every kParts-th limit from `part` on. Goes upwards, so that plans found under a
// limit serve those above it.
void PlanSearch::State::anneal(Searcher& searcher, std::span<const int64_t> chosen, size_t part,
                               int64_t steps) const {
  for (size_t i = part; i < chosen.size(); i += kParts) {
    const auto plan = *searcher.archive.fastest(chosen[i]);
    searcher.local.anneal(plan, chosen[i], steps / static_cast<int64_t>(chosen.size()));
    constexpr double kShare = 0.25;  // of the search; this phase runs twice
    progress->advance(kShare / static_cast<double>(chosen.size()));
  }
}

PlanSearch::PlanSearch(const Problem& problem, const RetentionPlan& unplanned,
                       const SearchEffort& effort)
    : state_(std::make_unique<State>(problem, unplanned, effort)) {}

PlanSearch::~PlanSearch() = default;

int64_t PlanSearch::smallest_peak_bytes() const {
  return state_->archive.leanest()->simulation.peak_bytes;
}

std::optional<Plan> PlanSearch::fastest(int64_t peak_bytes) {
  const auto* plan = state_->archive.fastest(peak_bytes);
  return plan == nullptr ? std::nullopt : std::optional(*plan);
}

Plan PlanSearch::leanest(double seconds) {
  const auto* plan = state_->archive.leanest(seconds);
  if (plan == nullptr)
    plan = state_->archive.fastest(state_->unplanned_peak);
  // The plan without recomputation has this peak, so that there is one.
  return *plan;  // NOLINT(clang-analyzer-core.*)
}

std::vector<Plan> search_frontier(const Problem& problem, const RetentionPlan& unplanned,
                                  const SearchEffort& effort) {
  PlanSearch search(problem, unplanned, effort);
  return search.state_->archive.frontier();
}

}  // namespace aten_recompute
