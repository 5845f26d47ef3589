#include "common/layer_pattern.h"

namespace aten_recompute {

std::optional<std::regex> compile_layer_pattern(const std::string& pattern) {
  // The compiler and the matcher of the C++ library go as deep as a pattern has groups and states.
  if (pattern.size() > kLongestPattern)
    return std::nullopt;
  auto flags = std::regex::ECMAScript;
#if defined(__GLIBCXX__)
  // Without backtracking, for which a pattern such as (a*)*b takes exponential time.
  flags |= std::regex_constants::__polynomial;
#endif
  try {
    return std::regex(pattern, flags);
  } catch (const std::regex_error&) {
    return std::nullopt;
  }
}

}  // namespace aten_recompute
