// What a plan decides, what runs as a result, and what that costs: decisions -> schedule ->
// simulation. All strategies go through here, so all are simulated as they run.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "passes/plan/problem.h"

namespace aten_recompute {

// Slots are the points at which values can be let go: slot 0 is the end of the forward, slot b + 1
// comes after the b-th backward node.
//
// Most values go in every slot or stay in every slot, so what is stored is a rule for each value
// and the slots that are exceptions: copies are cheap, and searches make many.
class Decisions {
 public:
  // Everything kept.
  explicit Decisions(const Problem& problem);

  // A value that is in memory and was used in this slot goes at its end. If it is read later, it is
  // then computed again.
  bool dropped(int32_t value, size_t slot) const {
    const auto rule = rules_[value];
    if ((rule & kHasExceptions) != 0 && is_exception(value, slot))
      return !follows(rule, slot);
    return follows(rule, slot);
  }
  void drop(int32_t value, size_t slot) { set(value, slot, true); }
  void keep(int32_t value, size_t slot) { set(value, slot, false); }
  void set(int32_t value, size_t slot, bool dropped);
  // In all slots at once: dropped whenever it can be, or never.
  void set_always(int32_t value, bool dropped);
  void drop_always(int32_t value) { set_always(value, true); }

  // The node that runs in place of `node` in the backward: itself, or one of its alternatives.
  int32_t chosen(int32_t node) const { return chosen_[node]; }
  void choose(int32_t node, int32_t alternative) { chosen_[node] = alternative; }

  size_t num_slots() const { return num_slots_; }
  // The same in every slot.
  bool operator==(const Decisions& other) const;

 private:
  enum Rule : uint8_t { kDropAtForwardEnd = 1, kDropInBackward = 2, kHasExceptions = 4 };

  static bool follows(uint8_t rule, size_t slot) {
    return (rule & (slot == 0 ? kDropAtForwardEnd : kDropInBackward)) != 0;
  }
  int64_t key(int32_t value, size_t slot) const {
    return static_cast<int64_t>(value) * static_cast<int64_t>(num_slots_) +
           static_cast<int64_t>(slot);
  }
  bool is_exception(int32_t value, size_t slot) const {
    return std::binary_search(exceptions_.begin(), exceptions_.end(), key(value, slot));
  }

  size_t num_slots_;
  std::vector<uint8_t> rules_;       // per value
  std::vector<int64_t> exceptions_;  // sorted keys of value and slot >= 1
  std::vector<int32_t> chosen_;
};

// Keeps, to the end of the forward, every forward value that a backward node reads, or whose view
// one reads, and no other: what ordinary autograd would do.
Decisions keep_what_is_read(const Problem& problem);

// One run of a node. `bound` has bit k set if output k is taken from this run; outputs that are
// still in memory from an earlier run are not.
struct Step {
  int32_t node = 0;
  int32_t slot = 0;  // forward: 0; backward: 1 + position of the backward node it serves
  uint64_t bound = ~uint64_t{0};
  // Bit k: the k-th of Problem::overwrites was made by the same program, and not handed to it.
  uint32_t own_memory = ~uint32_t{0};
};

// A value that was in memory between two slots in which it was used (or could have been: dropped).
struct Gap {
  int32_t value = 0;
  int32_t from = 0;  // slot of the use before
  int32_t to = 0;    // slot of the use after
  bool recomputed = false;
};

struct Simulation {
  int64_t peak_bytes = 0;
  int32_t peak_step = 0;           // index into the schedule
  int64_t forward_peak_bytes = 0;  // of the forward's steps
  int64_t saved_bytes = 0;         // alive between forward and backward
  double recompute_seconds = 0.0;  // beyond Problem::base_seconds()
  double excess = 0.0;  // sum over forward nodes and slots of what exceeds the limit, bytes
};

// Builds the schedule that follows from decisions, and walks it. Holds its working memory, so that
// one object serves many calls; not for several threads at once.
class Simulator {
 public:
  explicit Simulator(const Problem& problem);

  // Gives up on schedules of more steps than this: their peak and time are reported as endless.
  void set_max_steps(size_t max_steps) { max_steps_ = max_steps; }

  // The schedule, then the walk. `limit_bytes` is what `excess` counts from.
  Simulation run(const Decisions& decisions,
                 int64_t limit_bytes = std::numeric_limits<int64_t>::max());

  // Of the last run: all steps, the forward first; without those that only look at sizes of what
  // lives on.
  const std::vector<Step>& steps() const { return steps_; }
  // Of the last run: bytes alive while each step ran.
  const std::vector<int64_t>& step_bytes() const { return step_bytes_; }
  // Of the last run: where each root was kept or computed again between two uses.
  const std::vector<Gap>& gaps() const { return gaps_; }
  // Of the last run, per forward value: does the backward read what the forward made of it.
  const std::vector<bool>& captured() const { return captured_; }

  // Values that a plan may drop: computed by the forward, recomputable, no views, of some bytes,
  // and not the caller's to hold.
  const std::vector<int32_t>& droppable() const { return droppable_; }
  const Problem& problem() const { return problem_; }

 private:
  struct Again {
    int32_t position;  // of the node it stands for, in forward order
    int32_t node;
  };

  void find_pins();
  bool is_pinned(int32_t root) const;
  bool schedule(const Decisions& decisions);
  void require(int32_t value, const Decisions& decisions);
  void touch(int32_t value);
  void emit(int32_t node);
  uint32_t own_memory(int32_t node) const;
  void end_slot(const Decisions& decisions);
  bool is_made_again(int32_t value) const;
  bool is_let_go(int32_t value) const;
  int64_t bytes_held_beside() const;
  Simulation walk(int64_t limit_bytes);

  const Problem& problem_;
  Rows roots_;  // per value
  Rows views_;  // per root: the views of it
  // Per root, in pairs: the slot in which a backward node makes a view of it, and that of the
  // view's last use. In between dropping the root would free nothing, and a copy would come on top.
  Rows pins_;
  double base_seconds_;
  std::vector<uint8_t> is_root_;  // of a forward value that can be computed again
  std::vector<int32_t> droppable_;
  // Forward nodes that are worth a step: reading a size changes nothing, as long as the tensor
  // lives on anyway.
  std::vector<Step> forward_steps_;
  bool any_optional_ = false;

  size_t max_steps_ = std::numeric_limits<size_t>::max();
  std::vector<Step> steps_;
  std::vector<Step> backward_steps_;
  std::vector<int64_t> step_bytes_;
  std::vector<Gap> gaps_;
  std::vector<bool> captured_;

  int32_t slot_ = 0;
  enum Place : uint8_t { kGone, kHanded, kMade };  // handed: made by the forward, or given
  std::vector<uint8_t> available_;
  std::vector<uint8_t> made_again_;  // per value: in the backward
  std::vector<int32_t> used_in_;     // per root: the last slot that used it
  std::vector<int32_t> touched_;     // roots used in the current slot
  std::vector<uint8_t> pending_;     // per node: to run again in the current slot
  std::vector<Again> again_;         // those nodes
  std::vector<int32_t> stack_;
  std::vector<uint8_t> wanted_;  // per node: an optional forward node that something reads

  std::vector<uint8_t> live_;
  std::vector<int32_t> references_;
  std::vector<uint8_t> runs_again_;  // per node with replay_bytes: what it needs is being kept
};

}  // namespace aten_recompute
