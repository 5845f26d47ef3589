// One planning problem for the regions that run in one call of a method.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/model/problem.h"
#include "planner/model/retention_plan.h"

namespace aten_recompute {

// One run of a region, and how it hangs together with the other runs of the call. A value of
// another run is named by that run's place among all runs and its index in that run's problem.
struct RegionRun {
  struct OtherValue {
    int32_t run = 0;
    int32_t value = 0;
  };
  // A given value that is not the caller's: memory of an earlier run's value, or, with run -1, made
  // between the regions and not given to an earlier run.
  struct Given {
    int32_t value = 0;
    OtherValue from{-1, -1};
    bool kept = false;  // until the run's backward begins, whether that reads it or not
    // Of its memory, which need not be what the problem was made with: a slice of an input of the
    // caller's, perhaps. -1: what the problem says.
    int64_t bytes = -1;
  };
  // Where an incoming gradient comes from: the loss, gradients that later runs make, or both. As
  // autograd has it, they are added up as they come, in the memory of the first.
  // Neither: there is none, and it takes no memory.
  struct Incoming {
    bool from_loss = false;
    std::vector<OtherValue> gradients;  // later runs first
    bool passthrough = true;  // themselves or as views; otherwise something is made of them
  };

  const Problem* problem = nullptr;
  std::vector<Given> given;
  std::vector<Incoming> incoming;    // per Problem::incoming
  std::vector<int32_t> live_to_end;  // of Problem::results: what stays to the end of the step
  std::vector<int32_t> freed_before_backward;  // of those, what goes before the backward

  // What the problems do not know of, in bytes. With a value there are nodes for it
  // (JointProblem), even if it is 0.
  std::optional<int64_t> kept_before{};  // by operators between the run before and this one, for
                                         // their own backward
  std::optional<int64_t> beyond_in_backward{};  // while this run goes backward
  int64_t beyond_after_backward = 0;            // then, until the run before goes backward
  // What the loss that reads its outputs takes, where it was measured: beyond as much again as
  // their gradients, perhaps less than 0 (Problem::loss_bytes), and Problem::held_by_caller.
  std::optional<int64_t> beyond_in_loss{};
  int64_t held_by_caller = 0;
};

// For runs a and b, where b reads a's output y, and the loss b's output z:
//
//   forward    [nodes of a]  y' = handed(y)  k = between()  [nodes of b]
//   backward   m = begin()  [nodes of b]  end(m)  between(k)  dy = handed(dy')  [nodes of a]
//
// Behind the nodes of b, further gradients that it makes of what other runs read are summed.
// k has the bytes that operators between a and b keep (RegionRun::kept_before), m those of
// beyond_in_backward; the second `between` has beyond_after_backward for a workspace.
// Nothing is computed again across the border, as a region's backward holds copies of its own
// forward only: y' is not recomputable, and y stays as long as somebody reads it.
struct JointProblem {
  Problem problem;
  // Per run: indices in `problem` of the run's own nodes and values.
  std::vector<std::vector<int32_t>> nodes;
  std::vector<std::vector<int32_t>> values;
  // Per run: the forward node that stands for the operators before it, the node where its backward
  // begins, and the backward node that stands for the operators before it; -1: none.
  std::vector<int32_t> between;
  std::vector<int32_t> begin;
  std::vector<int32_t> between_again;
};

// `runs` in the order of the forward. Their problems must outlive the call only. `kept_after`: as
// RegionRun::kept_before, behind the last run.
JointProblem join(const std::vector<RegionRun>& runs, int64_t kept_after = 0);

// RetentionPlan for the joint problem that decide in each run what is decided for it alone, and
// back.
RetentionPlan join_decisions(const JointProblem& joint, const std::vector<RegionRun>& runs,
                             const std::vector<const RetentionPlan*>& decisions);
RetentionPlan decisions_of_run(const JointProblem& joint, size_t run, const Problem& problem,
                               const RetentionPlan& decisions);

}  // namespace aten_recompute
