#include "common/layer_pattern.h"

namespace aten_recompute {
namespace {

// The compiler of the C++ library adds digits up without a look at the size of the number.
bool has_long_number(const std::string& pattern) {
  constexpr size_t kMostDigits = 9;
  size_t digits = 0;
  for (const char c : pattern) {
    digits = c >= '0' && c <= '9' ? digits + 1 : 0;
    if (digits > kMostDigits)
      return true;
  }
  return false;
}

}  // namespace

std::optional<std::regex> compile_layer_pattern(const std::string& pattern) {
  // The compiler and the matcher of the C++ library go as deep as a pattern has groups and states.
  if (pattern.size() > kLongestPattern || has_long_number(pattern))
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
