// Whether an operator failed for lack of memory.
#pragma once

#include <exception>

namespace aten_recompute {

// Recognizes the errors of LibTorch's allocators and of the C++ library, also where LibTorch's
// interpreter has wrapped them into others.
bool is_out_of_memory(const std::exception& error);

}  // namespace aten_recompute
