// Runs a stretch of operators slice by slice, so that its inner values need the memory of one
// slice.
//
//   node kSliced
//     attr::Subgraph   the stretch: a straight-line graph without effects and random numbers
//     kSlices          into how many slices its rows are divided
//     kOperandRows     per operand, what a slice reads of it:
//                        a dimension    a part along it
//                        kWhole         all of it
//                        kRowCount      an int, the number of rows: that of the slice
//     kResultRows      per result, what becomes of those of the slices:
//                        a dimension    they are put one behind the other
//                        kSummed        they are added up
//                        kWhole         they are alike: a number such as a size
//     kBroadcasts      operands that are whole because they broadcast along the rows
//     kGradientOperands  (runtime/undefined_gradients.h) operands that are gradients. One may be
//                        None, which leaves out what depends on it; results that depend on none
//                        but such gradients are None, too
//     kMayFailEarly    a check stands behind the node that stood before some of its operators
//
// The rows are the elements along the dimensions that are sliced: tokens, edges, samples. All
// sliced operands of a call have the same number of rows.
#pragma once

#include <ATen/core/symbol.h>

#include <cstdint>

namespace aten_recompute {

inline const c10::Symbol kMayFailEarly = c10::Symbol::attr("may_fail_early");

inline constexpr int64_t kWhole = -1;
inline constexpr int64_t kSummed = -2;
inline constexpr int64_t kRowCount = -4;

// Registers aten_recompute::sliced, and
//
//   broadcast_size(int first, int second) -> int
//
// which returns the size of a dimension that values of these sizes broadcast to. Where the sliced
// operands of a call do not have one number of rows, or a slice has other results than the stretch
// was divided for, it runs as a whole, which always computes the same. Throws what the subgraph's
// operators throw when they run as a whole; with kMayFailEarly, path_left() then says that the call
// has to run as it was scripted, because the check might have failed before.
void register_sliced_operator();

}  // namespace aten_recompute
