#include "planner/search/valleys.h"

#include <algorithm>

namespace aten_recompute {

std::vector<std::pair<int64_t, int32_t>> valleys_of(const std::vector<int64_t>& row) {
  constexpr double kRise = 1.25;
  std::vector<std::pair<int64_t, int32_t>> valleys;
  bool falling = false;
  std::pair<int64_t, int32_t> extreme{0, -1};
  for (size_t i = 0; i < row.size(); ++i) {
    const auto here = std::pair(row[i], static_cast<int32_t>(i));
    if (falling ? here.first < extreme.first : here.first > extreme.first)
      extreme = here;
    const auto height = static_cast<double>(here.first);
    const auto turned = static_cast<double>(extreme.first);
    if (falling ? height > kRise * turned : kRise * height < turned) {
      if (falling)
        valleys.push_back(extreme);
      falling = !falling;
      extreme = here;
    }
  }
  return valleys;
}

std::vector<std::pair<int64_t, int32_t>> lowest_of_neighbors(
    const std::vector<std::pair<int64_t, int32_t>>& valleys, size_t count) {
  const auto stride = (valleys.size() + count - 1) / count;
  std::vector<std::pair<int64_t, int32_t>> lowest;
  for (size_t i = 0; i < valleys.size(); i += stride) {
    const auto end = std::min(valleys.size(), i + stride);
    lowest.push_back(*std::min_element(valleys.begin() + static_cast<int64_t>(i),
                                       valleys.begin() + static_cast<int64_t>(end)));
  }
  return lowest;
}

}  // namespace aten_recompute
