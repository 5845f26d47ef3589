// The peak of all memory of the CPU in a piece of a program, and what is alive at it. For tests
// that limit the memory of training code, lowered or not.
#pragma once

#include <cstdint>
#include <string>

namespace aten_recompute {

// Starts to count what any thread of the process allocates on the CPU. Blocks of more than a few
// thousandths of `limit_bytes` are remembered with the operator and the lines of Python that they
// come from, which takes some microseconds each. Returns false if there is a watch already, or if
// the present allocator cannot be wrapped.
bool start_peak_watch(int64_t limit_bytes);

// Ends the watch and returns, as JSON:
//
//   peak_bytes  the most that was alive at once of what was allocated since the start
//   at_bytes    what was alive when the blocks below were noted: near the peak; 0 if it never was
//               more than the limit
//   blocks      the ten largest blocks then: [{"bytes", "operator", "range", "frames"}], where
//               range is the part of a lowered module, or the node of autograd, that ran the
//               operator, and frames are [file, line, function], the innermost first
//
// Throws std::logic_error where there is no watch.
std::string stop_peak_watch();

}  // namespace aten_recompute
