// Text in lower case, for comparisons of what users write.
#pragma once

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>

namespace aten_recompute {

// Returns `text` with its ASCII letters in lower case.
inline std::string lower_case(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return result;
}

}  // namespace aten_recompute
