// Texts that many entries of a JSON document share, each written once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace aten_recompute {

class SharedTexts {
 public:
  // Returns the index of the text in all(); -1 for "".
  int32_t index_of(const std::string& text) {
    if (text.empty())
      return -1;
    const auto [found, is_new] = indices_.emplace(text, static_cast<int32_t>(texts_.size()));
    if (is_new)
      texts_.push_back(text);
    return found->second;
  }
  const std::vector<std::string>& all() const { return texts_; }

 private:
  std::map<std::string, int32_t> indices_;
  std::vector<std::string> texts_;
};

}  // namespace aten_recompute
