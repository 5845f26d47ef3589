// Suggestions for names that were mistyped, for error messages.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace aten_recompute {

// Returns `; did you mean "memory_budget"?`, the end of a message, if one of `known` is spelled
// much like `given`, or contains it; all of them if several are equally near; "" if none is. Upper
// and lower case are the same.
std::string did_you_mean(std::string_view given, const std::vector<std::string>& known);

}  // namespace aten_recompute
