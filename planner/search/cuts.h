// Where a program is cut into parts: between nodes where little is alive.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "planner/model/problem.h"

namespace aten_recompute {

struct Cut {
  int32_t after = -1;           // the last node before the cut
  std::vector<int32_t> values;  // alive at the cut, and read after it
};

// Returns at most `most` cuts of the nodes [begin, end), in their order. What counts as alive are
// those of `values` that these nodes make, up to the last of these nodes that reads them.
std::vector<Cut> find_cuts(const Problem& problem, const std::vector<int32_t>& values, size_t begin,
                           size_t end, size_t most);

// Returns, rising, the values at cuts of the nodes before the first served one, and at cuts of the
// served nodes of the forward. With them in memory, a plan that drops everything else goes back
// from any node to the cut before it, and no further.
std::vector<int32_t> values_at_cuts(const Problem& problem, const std::vector<int32_t>& values);

}  // namespace aten_recompute
