#include "planner/search/cuts.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace aten_recompute {
namespace {

// Returns, per value, the last of the nodes [begin, end) that reads it or a view of it; -1: none.
std::vector<int32_t> last_readers(const Problem& problem, size_t begin, size_t end) {
  const auto bases = base_values(problem);
  std::vector<int32_t> last(problem.num_values(), -1);
  for (auto node = begin; node < end; ++node) {
    for (auto input : problem.inputs[node]) {
      for (auto base : bases[input])
        last[base] = static_cast<int32_t>(node);
    }
  }
  return last;
}

// Returns the height and place of the lowest point of each valley of a row. A valley ends where the
// row has risen by a quarter.
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

// Reduces valleys to at most `count`: of as many neighbors as that takes, the lowest remains.
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

}  // namespace

std::vector<Cut> find_cuts(const Problem& problem, const std::vector<int32_t>& values, size_t begin,
                           size_t end, size_t most) {
  const auto last_reader = last_readers(problem, begin, end);
  std::vector<int32_t> handed_on;
  for (auto value : values) {
    const auto producer = problem.producer[value];
    if (std::cmp_greater_equal(producer, begin) && last_reader[value] > producer)
      handed_on.push_back(value);
  }
  std::vector<int64_t> alive(end - begin + 1, 0);
  for (auto value : handed_on) {
    alive[static_cast<size_t>(problem.producer[value]) - begin] += problem.value_bytes(value);
    alive[static_cast<size_t>(last_reader[value]) - begin] -= problem.value_bytes(value);
  }
  for (size_t i = 1; i < alive.size(); ++i)
    alive[i] += alive[i - 1];
  std::vector<Cut> cuts;
  for (const auto& [bytes, place] : lowest_of_neighbors(valleys_of(alive), most)) {
    Cut cut{static_cast<int32_t>(begin) + place, {}};
    std::copy_if(handed_on.begin(), handed_on.end(), std::back_inserter(cut.values),
                 [&](int32_t value) {
                   return problem.producer[value] <= cut.after && last_reader[value] > cut.after;
                 });
    cuts.push_back(std::move(cut));
  }
  return cuts;
}

std::vector<int32_t> values_at_cuts(const Problem& problem, const std::vector<int32_t>& values) {
  constexpr size_t kMostCuts = 64;
  std::vector<int32_t> found;
  const auto add = [&](size_t begin, size_t end) {
    for (const auto& cut : find_cuts(problem, values, begin, end, kMostCuts))
      found.insert(found.end(), cut.values.begin(), cut.values.end());
  };
  add(0, problem.first_served());
  add(problem.first_served(), problem.num_forward);
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

}  // namespace aten_recompute
