// Small changes to a plan: what searches are made of.
#pragma once

#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "planner/model/simulator.h"
#include "planner/search/equivalence_classes.h"

namespace aten_recompute {

// One thing about a plan changed: a value is let go in a slot or kept (value >= 0), or another node
// runs in a node's place (node >= 0), or both.
struct Move {
  int32_t value = -1;
  int32_t slot = 0;
  bool drop = false;
  int32_t node = -1;
  int32_t choice = -1;
  int32_t until = 0;   // of a value: the slot in which it is used next
  uint64_t group = 0;  // equal for moves that do the same in equal blocks

  using Key = std::tuple<int32_t, int32_t, bool, int32_t, int32_t>;
  Key key() const { return {value, slot, drop, node, choice}; }
};

// Makes a move; says what undoes it.
Move apply(RetentionPlan& decisions, const Move& move);
// The same of several, in their order; what undoes them is to be made in its own.
std::vector<Move> apply_all(RetentionPlan& decisions, std::span<const Move> moves);

// The moves that a plan offers.
class Moves {
 public:
  explicit Moves(const Problem& problem, const std::vector<int32_t>& droppable);

  // Values of fewer bytes are not worth a decision: statistics, generator states.
  void keep_below(int64_t bytes);
  // Those that are worth one.
  const std::vector<int32_t>& droppable() const { return droppable_; }
  // The same by class.
  std::vector<std::vector<int32_t>> kinds() const;

  // The same plan as `decisions`, of the simulator's last run, said of no more slots than matter:
  // what comes to be computed again by a change is let go again as soon as it can be.
  RetentionPlan canonicalize(const Simulator& simulator, const RetentionPlan& decisions) const;

  // What the simulator's last run, of `decisions`, offers: drops of what was kept over a slot that
  // exceeds the limit, keeping what was computed again, and alternatives.
  std::vector<Move> candidates(const Simulator& simulator, const RetentionPlan& decisions,
                               int64_t limit_bytes) const;

  // Of those to keep, the ones for which there is room in the slots between, as far as the
  // simulator's last run tells.
  std::vector<Move> offered_keeps_with_room(const Simulator& simulator,
                                            const RetentionPlan& decisions,
                                            int64_t limit_bytes) const;

 private:
  uint64_t group_of(const Move& move) const;

  const Problem& problem_;
  EquivalenceClasses classes_;
  std::vector<uint8_t> is_droppable_;
  std::vector<int32_t> droppable_;
  std::vector<int32_t> with_alternatives_;  // backward nodes
};

}  // namespace aten_recompute
