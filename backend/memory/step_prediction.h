// Predicts the memory of a step, and compares predictions with measurements.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "backend/memory/step_watch.h"
#include "common/warn_once.h"
#include "passes/pipeline.h"
#include "planner/model/method_problem.h"
#include "planner/search/budget.h"

namespace aten_recompute {

// The simulation of a step of several regions.
struct PredictedStep {
  MethodProblem whole;
  // Bytes while each node of the joint problem runs. Forward nodes that run again count with the
  // backward node that they run for.
  std::vector<int64_t> bytes;
  int64_t saved_bytes = 0;
  int64_t peak_bytes = 0;
};
// Simulates the step. `kept_after` is that of join(); `retention` has the plan of each run.
PredictedStep predict(const std::vector<RegionRun>& runs, int64_t kept_after,
                      const std::vector<const RetentionPlan*>& retention);

// Attributes what the call allocated beyond the prediction, and still holds when the method has
// returned, to operators between the regions, which keep it for their own backward. Raises
// RegionRun::kept_before and `kept_after` to that. `retention` has the plans that the runs
// followed.
void note_kept_between(std::vector<RegionRun>& runs, int64_t& kept_after,
                       const std::vector<const RetentionPlan*>& retention,
                       const StepMemory& memory);

// Raises RegionRun::beyond_in_backward and beyond_after_backward to what the backward needed beyond
// the prediction. Both are compared relative to the beginning of the last run's backward.
void note_beyond_in_backward(std::vector<RegionRun>& runs, int64_t kept_after,
                             const std::vector<const RetentionPlan*>& retention,
                             const StepMemory& memory);

// Returns whether the step can be compared with the prediction: its backward was watched to the
// end, and its gradients were new or added to existing ones as the plan assumes
// (Options::accumulate).
bool is_like_plan(const StepMemory& step, bool accumulate);

// Returns whether the predicted peak is too low by more than 1 %, or meets the budget although the
// measured one does not. All figures are bytes.
bool is_too_low(int64_t predicted, int64_t measured, int64_t budget);
// Returns whether the predicted peak is too high by more than 3 %.
bool is_too_high(int64_t predicted, int64_t measured);

// Warns once that the peak of a step was not the predicted one. Thread-safe.
class PeakDifference {
 public:
  // `of` is the beginning of the message.
  PeakDifference(std::string of, Options options)
      : of_(std::move(of)), options_(std::move(options)) {}

  // Logs the warning if the peak of `step` differs from the prediction by more than 3 %, or exceeds
  // the budget. The step needs to be like the plan. `is_planned_again` says that the region is.
  void say(const PlanMetrics& metrics, const StepMemory& step, bool is_planned_again = false);
  const Options& options() const { return options_; }

 private:
  const std::string of_;
  const Options options_;
  WarnOnce warn_;
};

// Memory of a caller's loss, in bytes.
struct LossMemory {
  int64_t incoming = 0;  // the gradients that it makes
  int64_t beside = 0;    // beside them while it makes them (Problem::loss_bytes)
  int64_t held = 0;      // held to the end of the backward (Problem::held_by_caller)
};
// Returns the memory of the loss in `step`. `problem` is that of a region, or a joint one. Returns
// nullopt if that is more than eight times the gradients of all calls that wait for their backward:
// something else must then have run between the call and its backward, or the size of the gradients
// is unknown.
std::optional<LossMemory> loss_memory(const Problem& problem, const StepMemory& step);

// Raises RegionRun::beyond_in_loss and held_by_caller of the last run to what the loss needed, and
// what was still allocated of it when the backward of the last run began.
void note_loss(std::vector<RegionRun>& runs, int64_t kept_after,
               const std::vector<const RetentionPlan*>& retention, const StepMemory& memory);

// Returns an upper bound of what operators outside the regions need, in bytes.
int64_t outside_bytes(const std::vector<RegionRun>& runs, int64_t kept_after);

}  // namespace aten_recompute
