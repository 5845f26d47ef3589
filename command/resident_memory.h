// The memory of this process as Linux counts it.
#pragma once

#include <cstdint>
#include <optional>

namespace aten_recompute::command {

// Give the resident memory in bytes, at present, and the most since reset_resident_peak(); nullopt
// where the system does not tell.
std::optional<int64_t> resident_bytes();
std::optional<int64_t> resident_peak_bytes();

// Lets the peak begin at the present resident memory. Returns whether the system did so.
bool reset_resident_peak();

// Gives what the C library keeps of freed memory back to the system.
void return_freed_memory();

}  // namespace aten_recompute::command
