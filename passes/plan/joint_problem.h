// One planning problem for the regions that run in one call of a method.
#pragma once

#include <cstdint>
#include <vector>

#include "passes/plan/decisions.h"
#include "passes/plan/problem.h"

namespace aten_recompute {

// One run of a region, and how it hangs together with the other runs of the call. A value of
// another run is named by that run's place among all runs and its index in that run's problem.
struct RegionRun {
  struct OtherValue {
    int32_t run = 0;
    int32_t value = 0;
  };
  // A given value that is not the caller's: memory of an earlier run's value, or, with run -1, made
  // between the regions.
  struct Given {
    int32_t value = 0;
    OtherValue from{-1, -1};
    bool kept = false;  // until the run's backward begins, whether that reads it or not
  };
  // Where an incoming gradient comes from: the loss, gradients that later runs make, or both.
  struct Incoming {
    bool from_loss = false;
    std::vector<OtherValue> gradients;  // later runs first
    bool handed_on = true;  // themselves or as views; otherwise something is made of them
  };

  const Problem* problem = nullptr;
  std::vector<Given> given;
  std::vector<Incoming> incoming;  // per Problem::incoming
  std::vector<int32_t> stays;      // of Problem::results: what stays to the end of the step
  std::vector<int32_t> let_go;     // of those, what goes before the backward
};

// For runs a and b, where b reads a's output y, and the loss b's output z:
//
//   forward    [nodes of a]  y' = handed(y)  [nodes of b]
//   backward   [nodes of b]  dy = handed(dy')  [nodes of a]
//
// Nothing is computed again across the border, as a region's backward holds copies of its own
// forward only: y' is not recomputable, and y stays as long as somebody reads it.
struct JointProblem {
  Problem problem;
  // Per run: indices in `problem` of the run's own nodes and values.
  std::vector<std::vector<int32_t>> nodes;
  std::vector<std::vector<int32_t>> values;
};

// `runs` in the order of the forward. Their problems must outlive the call only.
JointProblem join(const std::vector<RegionRun>& runs);

// Decisions for the joint problem that decide in each run what is decided for it alone, and back.
Decisions join_decisions(const JointProblem& joint, const std::vector<RegionRun>& runs,
                         const std::vector<const Decisions*>& decisions);
Decisions decisions_of_run(const JointProblem& joint, size_t run, const Problem& problem,
                           const Decisions& decisions);

}  // namespace aten_recompute
