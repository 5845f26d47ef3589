// What is said where a step runs out of memory that was planned.
#pragma once

#include <c10/util/Exception.h>

#include "backend/autograd/compiled_region.h"

namespace aten_recompute {

// Notes in the region that a call of it has run out of memory, if the error tells of that. Where
// the region `is_alone` in its method, adds to the error the peak that the plan predicts, the one
// that was measured, and the smallest that a plan can reach. Leaves every other error as it is, and
// those of regions without a plan.
void explain_if_out_of_memory(const CompiledRegion& region, bool is_alone,
                              c10::Error& error) noexcept;

}  // namespace aten_recompute
