// What is predicted of a step of several regions, held against what was measured.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/step_watch.h"
#include "passes/plan/joint_problem.h"

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
                      const std::vector<const Decisions*>& decisions);

// What operators between the regions keep for their own backward is what the call had allocated
// beyond what the regions explain, and still has when the method has returned. Noted in `runs` and
// `kept_after`, where it is more than is known already. `decisions`: what the runs ran by.
void note_kept_between(std::vector<RegionRun>& runs, int64_t& kept_after,
                       const std::vector<const Decisions*>& decisions, const StepMemory& memory);

// What is needed in the backward beyond what the problem says: from the beginning of the last run's
// backward on, how much more was allocated than the same step of a simulation has.
void note_beyond_in_backward(std::vector<RegionRun>& runs, int64_t kept_after,
                             const std::vector<const Decisions*>& decisions,
                             const StepMemory& memory);

// What of a joint problem is the need of operators outside of the regions, at most.
int64_t outside_bytes(const std::vector<RegionRun>& runs, int64_t kept_after);

}  // namespace aten_recompute
