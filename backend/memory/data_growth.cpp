#include "backend/memory/data_growth.h"

#include <c10/util/accumulate.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace aten_recompute {
namespace {

// The share by which a single tensor may grow.
constexpr double kGrowthOfOne = 0.5;
// Share of all elements below which a tensor is small.
constexpr double kSmall = 1.0 / 64;

// Returns the larger size of each dimension of `sizes`.
DataSizes larger_of_each(const DataSizes& sizes, const DataSizes& assumed) {
  auto larger = sizes;
  for (size_t i = 0; i < std::min(sizes.size(), assumed.size()); ++i) {
    if (sizes[i].size() != assumed[i].size())
      continue;
    std::transform(sizes[i].begin(), sizes[i].end(), assumed[i].begin(), larger[i].begin(),
                   [](int64_t a, int64_t b) { return std::max(a, b); });
  }
  return larger;
}

}  // namespace

double elements_of(const DataSizes& sizes) {
  double elements = 0.0;
  for (const auto& each : sizes)
    elements += static_cast<double>(c10::multiply_integers(each));
  return elements;
}

DataGrowth growth_of(const DataSizes& sizes, const DataSizes& assumed, double room) {
  const auto count = std::min(sizes.size(), assumed.size());
  double total = 0.0;
  double assumed_total = 0.0;
  for (size_t i = 0; i < assumed.size(); ++i) {
    const auto elements = static_cast<double>(c10::multiply_integers(assumed[i]));
    assumed_total += elements;
    total += i < count ? static_cast<double>(c10::multiply_integers(sizes[i])) : elements;
  }
  for (size_t i = 0; i < count; ++i) {
    const auto elements = static_cast<double>(c10::multiply_integers(sizes[i]));
    const auto allowed = static_cast<double>(c10::multiply_integers(assumed[i]));
    if (elements > kSmall * total && elements > (1.0 + kGrowthOfOne) * allowed)
      return DataGrowth::kOfOne;
  }
  const auto allowed_total = std::max(1.0 + kDataGrowth, std::sqrt(room)) * assumed_total;
  return total > allowed_total ? DataGrowth::kTotal : DataGrowth::kNone;
}

bool are_other_sizes(const DataSizes& sizes, const DataSizes& assumed) {
  return growth_of(sizes, assumed) != DataGrowth::kNone ||
         growth_of(assumed, sizes) != DataGrowth::kNone;
}

DataSizes sizes_after(DataGrowth growth, const DataSizes& sizes, const DataSizes& assumed) {
  return growth == DataGrowth::kTotal ? sizes : larger_of_each(sizes, assumed);
}

}  // namespace aten_recompute
