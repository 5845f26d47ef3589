// A schedule: which nodes run, in which order, as a result of a plan.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace aten_recompute {

// One run of a node.
struct Step {
  int32_t node = 0;
  int32_t slot = 0;  // of the node that it serves (Problem::slot_of)
  // Bit k: output k is taken from this run. Outputs that are still in memory from an earlier run
  // are not.
  uint64_t output_mask = ~uint64_t{0};
  // Bit k: the k-th value of Problem::overwrites was made by the same program, that before or that
  // after the loss, so its memory may be reused.
  uint32_t reusable_operands = ~uint32_t{0};
};

// Returns the bit of an output in Step::output_mask; the last bit stands for all outputs from it
// on.
inline uint64_t output_bit(size_t output) {
  return uint64_t{1} << std::min<size_t>(output, 63);
}

// The time between two slots that use a value. Dropping the value at the end of slot `from` means
// that slot `to` recomputes it.
struct Gap {
  int32_t value = 0;
  int32_t from = 0;
  int32_t to = 0;
  bool recomputed = false;  // otherwise the value was in memory all the time
};

enum Recomputed : uint8_t { kRecomputedBeforeLoss = 1, kRecomputedAfterLoss = 2 };

struct Schedule {
  // By slot. Forward nodes that only look at sizes of tensors are left out where the tensors live
  // on.
  std::vector<Step> steps;
  std::vector<Gap> gaps;  // of the values that a Scheduler tracks
  // Per value: where this forward value was made again; Recomputed, or several of them.
  std::vector<uint8_t> is_recomputed;
};

}  // namespace aten_recompute
