// Where little is alive: the places at which a program is cut into parts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace aten_recompute {

// Returns the height and place of the lowest point of each valley of a row. A valley ends where the
// row has risen by a quarter.
std::vector<std::pair<int64_t, int32_t>> valleys_of(const std::vector<int64_t>& row);

// Reduces valleys to at most `count`: of as many neighbors as that takes, the lowest remains.
std::vector<std::pair<int64_t, int32_t>> lowest_of_neighbors(
    const std::vector<std::pair<int64_t, int32_t>>& valleys, size_t count);

}  // namespace aten_recompute
