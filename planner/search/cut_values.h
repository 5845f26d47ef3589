// What to keep where the plan that drops everything would run for too long.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/model/problem.h"

namespace aten_recompute {

// Cuts what runs before the first served node, and the forward's served nodes, where little of
// what they hand on within themselves is alive, and returns the values alive at these cuts: those
// among `droppable` that such a part makes and that the rest of the same stretch reads. With them
// in memory every other value can be made from the nodes between two cuts, of each stretch. What
// the served nodes read of the others is not counted: it is made again when they run.
std::vector<int32_t> cut_values(const Problem& problem, const std::vector<int32_t>& droppable);

}  // namespace aten_recompute
