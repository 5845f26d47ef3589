// Checks that a call takes the path which its specialization was compiled for
// (passes/frontend/path/record_path.h).
#pragma once

#include <cstdint>
#include <optional>

namespace aten_recompute {

// Registers aten_recompute::check_path(bool condition, bool expected, int place) -> (). It throws
// an error where the first two differ, and notes for path_left() that this was the reason.
void register_path_operators();

// Returns the place of the check that has failed on this thread since the last call of this
// function; nullopt if none has.
std::optional<int64_t> path_left();

}  // namespace aten_recompute
