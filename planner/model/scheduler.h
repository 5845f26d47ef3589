// What runs as a result of a plan's decisions: the forward, then each backward node, with what has
// to be computed again before it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "planner/model/problem.h"
#include "planner/model/retention_plan.h"

namespace aten_recompute {

// One run of a node. `bound` has bit k set if output k is taken from this run; outputs that are
// still in memory from an earlier run are not.
struct Step {
  int32_t node = 0;
  int32_t slot = 0;  // forward: 0; backward: 1 + position of the backward node it serves
  uint64_t output_mask = ~uint64_t{0};
  // Bit k: the k-th of Problem::overwrites was made by the same program, and not handed to it.
  uint32_t reusable_operands = ~uint32_t{0};
};

// The bit of output k in Step::bound; the last bit stands for all outputs from it on.
inline uint64_t output_bit(size_t output) {
  return uint64_t{1} << std::min<size_t>(output, 63);
}

// A value that was in memory between two slots in which it was used (or could have been: dropped).
struct Gap {
  int32_t value = 0;
  int32_t from = 0;  // slot of the use before
  int32_t to = 0;    // slot of the use after
  bool recomputed = false;
};

// Holds its working memory, so that one object serves many calls; not for several threads at once.
// Searches call it tens of thousands of times, so what does not depend on the decisions is worked
// out beforehand.
class Scheduler {
 public:
  explicit Scheduler(const Problem& problem);

  // A promise that in the backward's slots only these, some of droppable(), are ever dropped. It
  // saves time; gaps() tells of no others.
  void drops_only(const std::vector<int32_t>& values);

  // False, without steps, if the schedule has more backward steps than `max_steps`.
  bool run(const RetentionPlan& decisions, size_t max_steps = std::numeric_limits<size_t>::max());

  // Steps of a plan that computes nothing again, all optional nodes among them.
  size_t base_steps() const { return forward_steps_.size() + problem_.num_backward(); }

  // Of the last run: all steps, the forward first; without those that only look at sizes of what
  // lives on.
  const std::vector<Step>& steps() const { return steps_; }
  // Of the last run: where each root was kept or computed again between two uses.
  const std::vector<Gap>& gaps() const { return gaps_; }
  // Of the last run: did the backward make `value`, of the forward, or what it views, again?
  bool is_made_again(int32_t value) const;

  // Values that a plan may drop: computed by the forward, recomputable, no views, of some bytes,
  // and not the caller's to hold.
  const std::vector<int32_t>& droppable() const { return droppable_; }

 private:
  struct Again {
    int32_t position;  // of the node it stands for, in forward order
    int32_t node;
  };
  enum Place : uint8_t { kGone, kHanded, kMade };  // handed: made by the forward, or given

  void find_roots();
  void find_pins();
  void find_forward_steps();
  void find_followed(const std::vector<int32_t>& values);
  void find_needs();
  void find_overwrites();
  bool is_pinned(int32_t root) const;
  void require(int32_t value, const RetentionPlan& decisions);
  void touch(int32_t value);
  void emit(int32_t node);
  uint32_t reusable_operands(int32_t node) const;
  void end_slot(const RetentionPlan& decisions);

  const Problem& problem_;
  JaggedArray base_values_;       // per value: Problem's roots()
  std::vector<uint8_t> is_root_;  // of a forward value that can be computed again
  std::vector<int32_t> all_roots_;
  std::vector<int32_t> droppable_;
  std::vector<uint8_t> is_followed_;  // the roots whose uses matter
  // Per value: of what is behind it, the roots that are followed. The first of them (-1: none), and
  // all where there are several.
  std::vector<int32_t> first_root_;
  JaggedArray roots_;
  JaggedArray views_;  // per root: the views of it
  // Per root, in pairs: the slot in which a backward node makes a view of it, and that of the
  // view's last use. In between dropping the root would free nothing, and a copy would come on top.
  JaggedArray pins_;
  // Per node: the inputs that may be gone, or by which a root is used.
  JaggedArray needs_;
  std::vector<uint8_t> overwrites_forward_;  // per node: what it may overwrite may be handed to it
  std::vector<uint8_t> available_at_start_;  // of the backward, if nothing were dropped
  // Forward nodes that are worth a step: reading a size changes nothing, as long as the tensor
  // lives on anyway.
  std::vector<Step> forward_steps_;
  bool any_optional_ = false;

  std::vector<Step> steps_;
  std::vector<Step> backward_steps_;
  std::vector<Gap> gaps_;

  int32_t slot_ = 0;
  std::vector<uint8_t> available_;   // Place, per value
  std::vector<uint8_t> made_again_;  // per value: in the backward
  std::vector<int32_t> used_in_;     // per root: the last slot that used it
  std::vector<int32_t> touched_;     // roots used in the current slot
  std::vector<uint8_t> pending_;     // per node: to run again in the current slot
  std::vector<Again> again_;         // those nodes
  std::vector<int32_t> stack_;
  std::vector<uint8_t> wanted_;  // per node: an optional forward node that something reads
};

}  // namespace aten_recompute
