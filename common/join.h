// Joins words into lists for messages.
#pragma once

#include <string>
#include <vector>

namespace aten_recompute {

// Returns the words with the separator between them.
inline std::string join(const std::vector<std::string>& words,
                        const std::string& separator = ", ") {
  std::string text;
  for (const auto& word : words)
    text += (text.empty() ? "" : separator) + word;
  return text;
}

}  // namespace aten_recompute
