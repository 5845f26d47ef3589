// Profiles a region: what each node of its forward and backward costs.
#pragma once

#include <ATen/core/ivalue.h>

#include <c10/core/Device.h>

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "common/options.h"
#include "ir/joint_graph.h"
#include "passes/profile/region_profile.h"

namespace aten_recompute {

// Walks the joint graph without running it: values stand for tensors of known sizes, types and
// aliasing, but without memory. Nodes of one class (the same operator on the same sizes, types and
// arguments) cost the same, so one of each class runs, timed and watched while it allocates: on the
// region's inputs where it reads them, and on zeros elsewhere. The walk needs the memory of one
// node at a time, changes no input, and restores the states of random generators.
//
// With CostModel::kFlops, `seconds` is computed from operations and bytes moved instead and is the
// same on every machine.
//
// Where data decide sizes, or an operator refuses zeros, the forward runs once on the inputs
// without side effects (passes/profile/observed_forward.h). A backward node that refuses zeros is
// estimated by the FLOP model, with sizes from a run on meta tensors.
//
// With `described`, the inputs are meta tensors that stand for tensors on that device, and nothing
// runs but shape functions (rules/shapes.h) and operators on meta tensors. Costs are those of the
// FLOP model. Throws NotProfiled with inputs_are_to_blame() where that is not possible.
//
// An operator that needs more memory than `limit` allows is estimated, too.
//
// If an input is on the meta device, all seconds come from the FLOP model. Where memory runs out,
// they do so, too, and operators that have no memory to run in are estimated. Throws NotProfiled,
// and where a forward that has to run on the inputs has no memory for that, its error. Passes
// ScratchMemory::LimitReached on (runtime/arena/scratch_memory.h).
Profile profile(const JointGraph& joint, const std::vector<c10::IValue>& inputs,
                CostModel cost_model, const ProfileAssumptions& seen = {},
                std::optional<at::Device> described = {}, ProfileLimit limit = {});

}  // namespace aten_recompute
