// What the values of a region cost, measured.
#pragma once

#include <ATen/core/ivalue.h>

#include <vector>

#include "passes/joint_graph.h"
#include "passes/plan/strategies.h"

namespace aten_recompute {

// Bytes of each forward value, by running the forward once on `inputs`, each value freed after its
// last use. Nothing is changed by it: random generators are put back, buffers (attributes that do
// not require grad) are copied first.
ValueBytes profile_bytes(const JointGraph& joint, const std::vector<c10::IValue>& inputs,
                         const std::vector<bool>& requires_grad);

}  // namespace aten_recompute
