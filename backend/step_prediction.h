// What is predicted of a step of several regions, held against what was measured.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/step_watch.h"
#include "passes/pipeline.h"
#include "planner/model/joint_problem.h"
#include "planner/search/budget.h"

namespace aten_recompute {

// A step as the simulator has it: by node of the joint problem, the bytes while it runs; in the
// backward, with the forward nodes that are run again for it.
struct PredictedStep {
  JointProblem joint;
  std::vector<int64_t> bytes;
  int64_t saved_bytes = 0;
  int64_t peak_bytes = 0;
};
PredictedStep predict(const std::vector<RegionRun>& runs, int64_t kept_after,
                      const std::vector<const RetentionPlan*>& decisions);

// What operators between the regions keep for their own backward is what the call had allocated
// beyond what the regions explain, and still has when the method has returned. Noted in `runs` and
// `kept_after`, where it is more than is known already. `decisions`: what the runs ran by.
void note_kept_between(std::vector<RegionRun>& runs, int64_t& kept_after,
                       const std::vector<const RetentionPlan*>& decisions,
                       const StepMemory& memory);

// What is needed in the backward beyond what the problem says: from the beginning of the last run's
// backward on, how much more was allocated than the same step of a simulation has.
void note_beyond_in_backward(std::vector<RegionRun>& runs, int64_t kept_after,
                             const std::vector<const RetentionPlan*>& decisions,
                             const StepMemory& memory);

// Every backward of the step was watched, and its gradients were new, or added to existing ones, as
// the plan has it (Options::accumulate). Then it can be compared with the prediction.
bool is_like_plan(const StepMemory& step, bool accumulate);

// The predicted peak, in bytes, is too low by more than 1 %, or so much that a budget of so many
// bytes is not kept, or too high by more than 3 %.
bool is_too_low(int64_t predicted, int64_t measured, int64_t budget);
bool is_too_high(int64_t predicted, int64_t measured);

// Says, once, that the peak of a step was not the predicted one. Thread-safe.
class PeakDifference {
 public:
  // `of`: what the message begins with.
  PeakDifference(std::string of, Options options)
      : of_(std::move(of)), options_(std::move(options)) {}

  // Off by more than 3 %, or over the budget, in a step that is like the plan.
  void say(const PlanMetrics& figures, const StepMemory& step, bool is_planned_again = false);
  const Options& options() const { return options_; }

 private:
  const std::string of_;
  const Options options_;
  std::atomic<bool> has_said_{false};
};

// What a caller's loss takes, in bytes.
struct LossMemory {
  int64_t incoming = 0;  // the gradients that it makes
  int64_t beside = 0;    // while it makes them (Problem::loss_bytes)
  int64_t held = 0;      // to the end of the backward (Problem::held_by_caller)
};
// What the loss of `step` took; `problem` is of a region, or a joint one. Nothing, where that is
// more than eight times the gradients, so that something else must have run between the call and
// its backward, or where the size of these is unknown.
std::optional<LossMemory> loss_memory(const Problem& problem, const StepMemory& step);

// What the loss took, and what of it, or of the caller's, was still there when the backward of the
// last run began.
void note_loss(std::vector<RegionRun>& runs, int64_t kept_after,
               const std::vector<const RetentionPlan*>& decisions, const StepMemory& memory);

// What of a joint problem is the need of operators outside of the regions, at most.
int64_t outside_bytes(const std::vector<RegionRun>& runs, int64_t kept_after);

}  // namespace aten_recompute
