// What lies where in the arena of a step, for reports (docs/memory.md).
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "backend/method/specialization.h"

namespace aten_recompute {

// Returns the arena that steps of this call follow, as docs/report.md says: its size, and each
// block with the operator that allocates it, its layer and line, its address, and the events, which
// are allocations and releases in order, at which it begins and ends. Returns null where no step
// has been recorded and placed: before the second step, without an arena, and in small steps.
nlohmann::json arena_blocks_of(const CompiledCall& call);

}  // namespace aten_recompute
