// Ways from one plan to a better one. The simulator is their oracle, so what they find is what
// runs; everything that they try is offered to a pool.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "planner/search/checkpoints.h"
#include "planner/search/moves.h"
#include "planner/search/pareto_archive.h"

namespace aten_recompute {

// Xorshift64*: the standard library's distributions differ between implementations.
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

// Moves that do the same in equal blocks are made together, then for as many blocks as fit: effort
// grows with the kinds of blocks, not with their number. `steps` bounds it: simulated steps, after
// which what was found so far is left.
class LocalSearch {
 public:
  // All three outlive it. `seed` is not 0.
  LocalSearch(Simulator& simulator, const Moves& moves, ParetoArchive& pool, uint64_t seed);

  // Drops what costs least time per byte of excess, until nothing exceeds the limit or no drop
  // helps.
  void reduce(Plan& plan, int64_t limit_bytes, int64_t steps);
  // The same without groups: where equal blocks must not do the same.
  void reduce_one_by_one(Plan& plan, int64_t limit_bytes, int64_t steps);

  // From a plan that drops everything: values are kept at the end of the forward, or in the
  // backward as well, those first that save most time per byte, as long as nothing exceeds the
  // limit.
  void build_up(Plan& plan, int64_t limit_bytes, int64_t steps);

  // Moves::concise().
  void make_concise(Plan& plan);

  // Other checkpoints in `inner`, so that little exceeds the limit.
  void set_checkpoints(const Checkpoints& checkpoints, const RetentionPlan& inner,
                       int64_t limit_bytes);

  // Keeps again, gap by gap, what saves most time per byte, as long as nothing exceeds the limit.
  void relax(Plan& plan, int64_t limit_bytes, int64_t steps);

  // Simulated annealing (Kirkpatrick et al., 1983). Plans over the limit may be passed through, at
  // a price.
  void anneal(const Plan& start, int64_t limit_bytes, int64_t steps);

  // Runs the simulator, and offers the plan to the pool.
  Simulation simulate(const RetentionPlan& decisions, int64_t limit_bytes);
  // Steps simulated so far: the measure of effort.
  int64_t num_steps() const { return num_steps_; }

 private:
  // As kMaxSteps, where a plan is improved that is of some use already: what would run so much more
  // often is no improvement, and takes long to simulate.
  static constexpr int64_t kMaxStepsToImprove = 6;

  using Rates = std::unordered_map<uint64_t, double>;  // of groups, as last seen
  struct Group;
  struct Rise;

  void allow_steps(int64_t factor);
  Simulation run(const RetentionPlan& decisions, int64_t limit_bytes);  // counts its steps
  std::vector<Group> groups(std::span<const Move> moves, bool drop, bool single) const;
  Simulation attempt(RetentionPlan& decisions, std::span<const Move> moves, int64_t limit_bytes);
  void reduce_by(Plan& plan, int64_t limit_bytes, bool single, int64_t steps);
  bool reduce_once(Plan& plan, int64_t limit_bytes, bool single, Rates& rates, int64_t end);
  void accept_drops(Plan& plan, std::span<const Move> moves, bool enough, int64_t limit_bytes);
  std::vector<std::vector<Move>> rated_keeps(Plan& plan, int64_t limit_bytes, int64_t end);
  int64_t bytes_of(std::span<const int32_t> values) const;
  std::vector<double> most_saved_by_keeping(std::span<const std::vector<int32_t>> kinds) const;
  double seconds_per_node() const {
    return problem_.base_seconds() / static_cast<double>(problem_.num_nodes);
  }
  double price_of_excess(const Plan& plan, int64_t limit_bytes) const;
  std::vector<Move> draw(std::span<const Move> candidates);

  Simulator& simulator_;
  const Moves& moves_;
  const Problem& problem_;
  ParetoArchive& pool_;
  Random random_;
  int64_t num_steps_ = 0;
  int64_t max_steps_ = 0;  // of one simulation
};

}  // namespace aten_recompute
