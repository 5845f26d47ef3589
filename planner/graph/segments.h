// Which separators to keep.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace aten_recompute {

// One stretch of the forward that ends in a separator (the last one ends in the outputs).
struct Segment {
  int64_t saved_bytes = 0;      // what its backward needs and recomputation would bring back
  int64_t separator_bytes = 0;  // what keeping the separator at its end costs; last segment: 0
};

// Chooses the separators to keep so that  sum(kept separators) + max(saved bytes between two kept
// ones)  is smallest: that sum is what is alive at the worst point of the backward, gradients
// aside. `count`: keep so many segments at most (>= 1), then with the smallest maximum. Returns one
// flag per segment: keep the separator at its end. O(n^3) for n segments at worst.
std::vector<bool> choose_separators(const std::vector<Segment>& segments,
                                    std::optional<int64_t> count);

}  // namespace aten_recompute
