// The choice of separators to keep.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace aten_recompute {

// A stretch of the forward that ends in a separator; the last one ends in the outputs.
struct Segment {
  int64_t saved_bytes = 0;      // what its backward reads, and has to recompute if it is not kept
  int64_t separator_bytes = 0;  // what keeping the separator at its end costs; last segment: 0
};

// Chooses the separators to keep so that  sum(kept separators) + max(saved bytes between two kept
// ones)  is smallest. Apart from gradients, that is what is alive at the worst point of the
// backward. With `count` (>= 1) the choice makes at most that many segments and the maximum
// smallest. Returns one flag per segment: whether to keep the separator at its end. Takes O(n^3)
// for n segments.
std::vector<bool> choose_separators(const std::vector<Segment>& segments,
                                    std::optional<int64_t> count);

}  // namespace aten_recompute
