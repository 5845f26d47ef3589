// Checks that a call takes the path which its specialisation was compiled for
// (passes/frontend/record_path.h).
#pragma once

#include <cstdint>

namespace aten_recompute {

// Registers aten_recompute::check_path(bool condition, bool expected) -> (). It throws an error
// where the two differ, and notes for path_left() that this was the reason.
void register_path_operators();

// Returns whether a check has failed on this thread since the last call of this function.
bool path_left();

}  // namespace aten_recompute
