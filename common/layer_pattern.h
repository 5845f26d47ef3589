// Regular expressions over module paths, as the option "pattern" gives them.
#pragma once

#include <optional>
#include <regex>
#include <string>

namespace aten_recompute {

constexpr size_t kLongestPattern = 256;  // characters

// Returns the compiled pattern; nothing if it is no regular expression, or one that could take the
// machine: matching it takes time in proportion to the path, whatever the pattern is.
std::optional<std::regex> compile_layer_pattern(const std::string& pattern);

}  // namespace aten_recompute
