#include "common/json_text.h"

#include <algorithm>

namespace aten_recompute {
namespace {

// Returns how many lists and objects stand inside each other, at most.
size_t depth_of(std::string_view text) {
  size_t depth = 0, deepest = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if ((c == ']' || c == '}') && depth > 0) {
      --depth;
    }
  }
  return deepest;
}

}  // namespace

std::string printable(std::string_view message) {
  constexpr size_t kLongest = 300;
  std::string text(message.substr(0, kLongest));
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return message.size() <= kLongest ? text : text + "...";
}

std::string json_limit_exceeded(std::string_view text) {
  if (text.size() > kLongestJson)
    return "longer than " + std::to_string(kLongestJson >> 20) + " MiB";
  if (depth_of(text) > kDeepestJson)
    return "nested more than " + std::to_string(kDeepestJson) + " levels deep";
  return "";
}

}  // namespace aten_recompute
