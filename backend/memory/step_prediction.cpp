#include "backend/memory/step_prediction.h"

#include <algorithm>

#include "common/log.h"
#include "planner/model/simulator.h"

namespace aten_recompute {
namespace {

// Differences as fractions of the peak.
constexpr double kTooLow = 0.01;
constexpr double kTooHigh = 0.03;
constexpr double kWorthSaying = 0.03;

bool exceeds(int64_t bytes, double share, int64_t of) {
  return bytes > static_cast<int64_t>(share * static_cast<double>(of));
}

// Returns whether the budget is exceeded, apart from a loss outside the regions, which is a scalar
// or two.
bool is_over(int64_t measured, int64_t budget) {
  constexpr int64_t kScalars = 256;
  return measured - budget > kScalars + budget / 1000;
}

}  // namespace

PredictedStep predict(const std::vector<RegionRun>& runs, int64_t kept_after,
                      const std::vector<const RetentionPlan*>& retention) {
  PredictedStep step{join(runs, kept_after), {}};
  const auto& problem = step.whole.problem;
  Simulator simulator(problem);
  const auto simulation = simulator.run(join_retentions(step.whole, runs, retention));
  step.saved_bytes = simulation.saved_bytes;
  step.peak_bytes = simulation.peak_bytes;
  step.bytes.resize(problem.num_nodes, 0);
  for (size_t i = 0; i < simulator.steps().size(); ++i) {
    const auto& [node, slot, output_mask, reusable_operands] = simulator.steps()[i];
    const auto serves = slot == 0 ? node : problem.node_of(static_cast<size_t>(slot));
    step.bytes[serves] = std::max(step.bytes[serves], simulator.step_bytes()[i]);
  }
  return step;
}

namespace {

// Predicts the step with nodes for the beginning and the end of every run's backward; for that,
// sets RegionRun::beyond_in_backward where it is not set.
PredictedStep predict_with_ends(std::vector<RegionRun>& runs, int64_t kept_after,
                                const std::vector<const RetentionPlan*>& retention) {
  for (auto& run : runs)
    run.beyond_in_backward = run.beyond_in_backward.value_or(0);
  return predict(runs, kept_after, retention);
}

}  // namespace

void note_kept_between(std::vector<RegionRun>& runs, int64_t& kept_after,
                       const std::vector<const RetentionPlan*>& retention,
                       const StepMemory& memory) {
  if (memory.at_forward.size() != runs.size())
    return;
  auto measured = runs;
  for (auto& run : measured)
    run.kept_before = 0;
  const auto step = predict(measured, 0, retention);
  int64_t beyond = memory.saved - step.saved_bytes;
  std::vector<int64_t> by_run(runs.size() + 1, beyond);  // bytes kept before each run
  for (size_t i = runs.size(); i-- > 0;) {
    beyond = std::min(beyond, memory.at_forward[i] - step.bytes[step.whole.between[i]]);
    by_run[i] = beyond;
  }
  int64_t before = 0;
  for (size_t i = 0; i < by_run.size(); ++i) {
    const auto kept = std::max<int64_t>(0, by_run[i] - before);
    before = std::max(before, by_run[i]);
    if (i == runs.size())
      kept_after = std::max(kept_after, kept);
    else if (kept > runs[i].kept_before.value_or(0))
      runs[i].kept_before = kept;
  }
}

void note_beyond_in_backward(std::vector<RegionRun>& runs, int64_t kept_after,
                             const std::vector<const RetentionPlan*>& retention,
                             const StepMemory& memory) {
  if (memory.backward.size() != runs.size())
    return;
  auto measured = runs;
  const auto step = predict_with_ends(measured, kept_after, retention);
  const auto& bytes = step.bytes;
  bool has_begun = false;
  int64_t at_backward = 0;
  for (size_t i = runs.size(); i-- > 0;) {
    const auto& [has_run, peak, peak_after] = memory.backward[i];
    if (!has_run)
      continue;
    const auto begin = step.whole.begin[i];
    const auto between = step.whole.between_again[i];
    if (!has_begun)
      at_backward = bytes[begin] - *measured[i].beyond_in_backward;
    has_begun = true;
    const auto predicted = *std::max_element(bytes.begin() + begin, bytes.begin() + between);
    const auto in_backward = *measured[i].beyond_in_backward + peak - (predicted - at_backward);
    if (in_backward > *measured[i].beyond_in_backward)
      runs[i].beyond_in_backward = in_backward;
    const auto after = runs[i].beyond_after_backward + peak_after - (bytes[between] - at_backward);
    if (peak_after > 0 && after > runs[i].beyond_after_backward) {
      runs[i].beyond_after_backward = after;
      runs[i].beyond_in_backward = runs[i].beyond_in_backward.value_or(0);
    }
  }
}

bool is_like_plan(const StepMemory& step, bool accumulate) {
  const auto unlike = accumulate ? step.num_new_gradients : step.num_added_gradients;
  return unlike == 0 && !step.backward.empty();
}

bool is_too_low(int64_t predicted, int64_t measured, int64_t budget) {
  return exceeds(measured - predicted, kTooLow, predicted) ||
         (predicted <= budget && is_over(measured, budget));
}

bool is_too_high(int64_t predicted, int64_t measured) {
  return exceeds(predicted - measured, kTooHigh, measured);
}

void PeakDifference::say(const PlanMetrics& metrics, const StepMemory& step,
                         bool is_planned_again) {
  if (log_enabled(LogTopic::kMemory, LogLevel::kInfo))
    log_info(LogTopic::kMemory, of_ + "the peak of a step was " + std::to_string(step.peak) +
                                    " bytes; " + std::to_string(metrics.predicted_peak_bytes) +
                                    " were predicted");
  const auto predicted = metrics.predicted_peak_bytes;
  const auto budget = budget_bytes(options_, metrics.fraction_counts_from);
  const bool is_more = exceeds(step.peak - predicted, kWorthSaying, predicted) ||
                       (predicted <= budget && is_over(step.peak, budget));
  if (!is_more && !is_too_high(predicted, step.peak))
    return;
  if (warn_.has_warned())
    return;
  const auto of_caller = step.at_backward - step.saved;
  std::string why;
  if (is_planned_again) {
    why =
        ": between the call and its backward, more was in use than the outputs and their "
        "gradients, by a loss or other calls, or the graph was retained, so that memory_budget may "
        "have been exceeded. The region is planned again before the next call";
  } else if (is_more && of_caller > 0) {
    why = "; " + std::to_string(of_caller) +
          " bytes were allocated between the call and its backward (by a loss or other calls, for "
          "example), which memory_budget does not include";
  } else if (is_more) {
    why = ", so that memory_budget may have been exceeded";
  } else {
    why =
        ", so that more may be recomputed than memory_budget requires. If gradients are added to "
        "existing ones, or freed in the backward, set \"accumulate\": true";
  }
  warn_(LogTopic::kMemory, of_ + "the peak of a step was " + std::to_string(step.peak) +
                               " bytes where " + std::to_string(predicted) + " were predicted" +
                               why);
}

std::optional<LossMemory> loss_memory(const Problem& problem, const StepMemory& step) {
  constexpr int64_t kMaxFactor = 8;
  LossMemory loss;
  loss.incoming = problem.incoming_bytes();
  const auto num_calls = 1 + step.num_others;  // whose gradients the loss makes
  const auto without = step.saved + num_calls * loss.incoming;
  loss.held = std::max<int64_t>(step.at_backward + step.freed_before_backward - without, 0);
  loss.beside = std::max<int64_t>(step.loss_peak - without - loss.held, 0);
  if (loss.held + loss.beside > kMaxFactor * num_calls * loss.incoming)
    return std::nullopt;
  return loss;
}

void note_loss(std::vector<RegionRun>& runs, int64_t kept_after,
               const std::vector<const RetentionPlan*>& retention, const StepMemory& memory) {
  const auto problem = join(runs, kept_after).problem;
  const auto loss = loss_memory(problem, memory);
  if (!loss || memory.backward.size() != runs.size())
    return;
  auto measured = runs;
  const auto step = predict_with_ends(measured, kept_after, retention);
  auto& last = runs.back();
  for (size_t i = runs.size(); i-- > 0;) {
    if (!memory.backward[i].has_run)
      continue;
    const auto planned = step.bytes[step.whole.begin[i]] - *measured[i].beyond_in_backward;
    last.held_by_caller += std::max<int64_t>(0, memory.at_backward - planned);
    break;
  }
  const auto assumed = problem.loss_bytes - last.beyond_in_loss.value_or(0);
  const auto beyond = loss->beside - assumed;
  last.beyond_in_loss = std::max(beyond, last.beyond_in_loss.value_or(beyond));
}

int64_t outside_bytes(const std::vector<RegionRun>& runs, int64_t kept_after) {
  int64_t kept = kept_after;
  int64_t beyond = 0;
  for (const auto& run : runs) {
    kept += run.kept_before.value_or(0);
    beyond = std::max({beyond, run.beyond_in_backward.value_or(0), run.beyond_after_backward});
  }
  return kept + beyond;
}

}  // namespace aten_recompute
