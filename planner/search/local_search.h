// Ways from one plan to a better one. The simulator judges every step, so plans cost what they are
// said to cost; every plan that is tried is offered to an archive.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "planner/search/checkpoints.h"
#include "planner/search/moves.h"
#include "planner/search/pareto_archive.h"

namespace aten_recompute {

// Xorshift64*. The standard library's distributions differ between implementations, and plans must
// not.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL) {}  // not 0
  size_t below(size_t bound) { return static_cast<size_t>((next() >> 11) % bound); }
  double unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

 private:
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1DULL;
  }
  uint64_t state_;
};

// Moves that do the same in equal blocks are made together, then for as many blocks as fit, so that
// the effort grows with the kinds of blocks, not with their number. `steps` bounds the effort:
// after so many simulated steps a function leaves the plan as it is then.
class LocalSearch {
 public:
  // `simulator`, `moves` and `archive` must outlive this object. `seed` must not be 0.
  LocalSearch(Simulator& simulator, const Moves& moves, ParetoArchive& archive, uint64_t seed);

  // Drops the values that cost least time per byte of excess, until nothing exceeds the limit or no
  // drop helps.
  void reduce(Plan& plan, int64_t limit_bytes, int64_t steps);
  // Does the same without groups, for plans in which equal blocks must be treated differently.
  void reduce_one_by_one(Plan& plan, int64_t limit_bytes, int64_t steps);

  // Starts from a plan that drops everything. Keeps values at the end of the forward, or in the
  // backward as well, while nothing exceeds the limit; those first that save most time per byte.
  void build_up(Plan& plan, int64_t limit_bytes, int64_t steps);

  // Applies Moves::canonicalize() to the plan.
  void canonicalize(Plan& plan);

  // Tries `inner` with other checkpoints that are chosen for the limit.
  void set_checkpoints(const Checkpoints& checkpoints, const RetentionPlan& inner,
                       int64_t limit_bytes);

  // Keeps values over gaps in which they were recomputed, while nothing exceeds the limit; those
  // first that save most time per byte.
  void relax(Plan& plan, int64_t limit_bytes, int64_t steps);

  // Simulated annealing (Kirkpatrick et al., 1983). It may pass through plans that exceed the
  // limit, at a price.
  void anneal(const Plan& start, int64_t limit_bytes, int64_t steps);

  // Simulates the plan and offers it to the archive.
  Simulation simulate(const RetentionPlan& plan, int64_t limit_bytes);
  // The number of steps simulated so far, which measures the effort.
  int64_t num_steps() const { return num_steps_; }

 private:
  // Takes the place of kMaxSteps where a useful plan is improved: a plan with more steps would be
  // no improvement, and would take long to simulate.
  static constexpr int64_t kMaxStepsToImprove = 6;

  using Rates = std::unordered_map<uint64_t, double>;  // per group: the gain per cost last seen
  struct Group;
  struct Candidate;
  class BuildUp;

  void allow_steps(int64_t factor);
  Simulation run(const RetentionPlan& plan, int64_t limit_bytes);  // counts its steps
  const SimulatedRun& last_run_of(const RetentionPlan& plan) const;
  std::vector<Group> groups(std::span<const Move> moves, bool drop, bool single) const;
  Simulation attempt(RetentionPlan& plan, std::span<const Move> moves, int64_t limit_bytes);
  void reduce_by(Plan& plan, int64_t limit_bytes, bool single, int64_t steps);
  bool reduce_once(Plan& plan, int64_t limit_bytes, bool single, Rates& rates, int64_t end);
  void accept_drops(Plan& plan, std::span<const Move> moves, bool enough, int64_t limit_bytes);
  std::vector<std::vector<Move>> rated_keeps(Plan& plan, int64_t limit_bytes, int64_t end);
  int64_t bytes_of(std::span<const int32_t> values) const;
  std::vector<double> most_saved_by_keeping(std::span<const std::vector<int32_t>> kinds,
                                            const Schedule& schedule) const;
  double seconds_per_node() const {
    return problem_.base_seconds() / static_cast<double>(problem_.num_nodes);
  }
  double price_of_excess(const Plan& plan, int64_t limit_bytes) const;
  std::vector<Move> draw(std::span<const Move> candidates);

  Simulator& simulator_;
  const Moves& moves_;
  const Problem& problem_;
  ParetoArchive& archive_;
  Random random_;
  int64_t num_steps_ = 0;
  int64_t max_steps_ = 0;  // of one simulation
};

}  // namespace aten_recompute
