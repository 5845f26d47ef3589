// Finds out what decides whether the values of a region require grad (runtime/tape_reach.h).
#pragma once

#include "ir/joint_graph.h"
#include "runtime/tape_reach.h"

namespace aten_recompute {

// Returns it, and numbers the tapes of the forward (kTapeNumber). Values that joint.requires_grad
// does not have require no grad in any call. Where it cannot be told what a value depends on, it
// counts as one that always requires grad.
TapeSources number_tapes(JointGraph& joint);

}  // namespace aten_recompute
