// Small changes to a plan, from which searches build better plans.
#pragma once

#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "planner/model/simulator.h"
#include "planner/search/equivalence_classes.h"

namespace aten_recompute {

// A change to a plan: a value is dropped or kept in a slot (value >= 0), another node runs in the
// place of a node (node >= 0), or both.
struct Move {
  int32_t value = -1;
  int32_t slot = 0;
  bool drop = false;
  int32_t node = -1;
  int32_t choice = -1;
  int32_t until = 0;   // the slot in which the value is used next
  uint64_t group = 0;  // equal for corresponding moves in equal blocks

  using Key = std::tuple<int32_t, int32_t, bool, int32_t, int32_t>;
  Key key() const { return {value, slot, drop, node, choice}; }
};

// Applies a move to a plan. Returns the move that undoes it.
Move apply(RetentionPlan& plan, const Move& move);
// Applies moves in order. Returns the undo list, to be applied in order.
std::vector<Move> apply_all(RetentionPlan& plan, std::span<const Move> moves);

// Finds the moves that are possible from a plan.
class Moves {
 public:
  // `problem` must outlive this object. `droppable`: the values that moves are about.
  explicit Moves(const Problem& problem, const std::vector<int32_t>& droppable);

  // Leaves out values of fewer bytes, such as statistics and generator states, unless the program
  // asks for their recomputation.
  void ignore_below(int64_t bytes);
  // The values that moves are about.
  const std::vector<int32_t>& droppable() const { return droppable_; }
  // See last_slots_of_forward().
  int32_t last_slot_of_forward(int32_t value) const { return last_slots_[value]; }
  // Returns these values, grouped by equivalence class.
  std::vector<std::vector<int32_t>> kinds() const;

  // Returns a plan with the same schedule as `run`, in which settings without an effect are
  // cleared: a value that a later change makes the backward recompute is dropped as soon as
  // possible.
  RetentionPlan canonicalize(const SimulatedRun& run) const;

  // Returns the moves from the plan of `run`: drops of values that were kept over a slot that
  // exceeds the limit, keeps of values that were recomputed, and choices of alternatives.
  std::vector<Move> candidates(const SimulatedRun& run, int64_t limit_bytes) const;

  // Returns those of candidates() that drop nothing and whose values fit below the limit in all
  // slots between the two uses.
  std::vector<Move> keeps_with_room(const SimulatedRun& run, int64_t limit_bytes) const;

 private:
  uint64_t group_of(const Move& move) const;
  void add(Move move, std::vector<Move>& found) const;
  void add_moves(const Gap& gap, const RetentionPlan& plan, bool is_over_limit,
                 std::vector<Move>& found) const;

  const Problem& problem_;
  EquivalenceClasses classes_;
  std::vector<uint8_t> is_droppable_;
  std::vector<int32_t> droppable_;
  std::vector<int32_t> last_slots_;         // per value: that before the loss
  std::vector<int32_t> with_alternatives_;  // backward nodes
};

}  // namespace aten_recompute
