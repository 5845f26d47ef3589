#include "backend/step_prediction.h"

#include <algorithm>

#include "passes/plan/simulator.h"

namespace aten_recompute {

PredictedStep predict(const std::vector<RegionRun>& runs, int64_t kept_after,
                      const std::vector<const Decisions*>& decisions) {
  PredictedStep step{join(runs, kept_after), {}};
  const auto& problem = step.joint.problem;
  Simulator simulator(problem);
  const auto simulation = simulator.run(join_decisions(step.joint, runs, decisions));
  step.saved_bytes = simulation.saved_bytes;
  step.peak_bytes = simulation.peak_bytes;
  step.bytes.resize(problem.num_nodes, 0);
  for (size_t i = 0; i < simulator.steps().size(); ++i) {
    const auto& [node, slot, bound, own_memory] = simulator.steps()[i];
    const auto serves = slot == 0 ? static_cast<size_t>(node) : problem.num_forward + slot - 1;
    step.bytes[serves] = std::max(step.bytes[serves], simulator.step_bytes()[i]);
  }
  return step;
}

void note_kept_between(std::vector<RegionRun>& runs, int64_t& kept_after,
                       const std::vector<const Decisions*>& decisions, const StepMemory& memory) {
  if (memory.at_forward.size() != runs.size())
    return;
  auto measured = runs;
  for (auto& run : measured)
    run.kept_before = 0;
  const auto step = predict(measured, 0, decisions);
  int64_t beyond = memory.saved - step.saved_bytes;
  std::vector<int64_t> by_run(runs.size() + 1, beyond);  // kept before it
  for (size_t i = runs.size(); i-- > 0;) {
    beyond = std::min(beyond, memory.at_forward[i] - step.bytes[step.joint.between[i]]);
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
                             const std::vector<const Decisions*>& decisions,
                             const StepMemory& memory) {
  if (memory.backward.size() != runs.size())
    return;
  auto measured = runs;
  for (auto& run : measured)
    run.beyond_in_backward = run.beyond_in_backward.value_or(0);
  const auto step = predict(measured, kept_after, decisions);
  const auto& bytes = step.bytes;
  bool has_begun = false;
  int64_t at_backward = 0;
  for (size_t i = runs.size(); i-- > 0;) {
    const auto& [has_run, peak, peak_after] = memory.backward[i];
    if (!has_run)
      continue;
    const auto begin = step.joint.begin[i];
    const auto between = step.joint.between_again[i];
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
