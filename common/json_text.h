// Limits on JSON that comes from outside: options, plan files, problems.
//
// The parser itself has none. Copying, comparing and printing a value goes as deep as the value
// does, so a text of opening brackets alone would overflow the stack.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace aten_recompute {

constexpr size_t kDeepestJson = 64;                // lists and objects inside each other
constexpr size_t kLongestJson = size_t{32} << 20;  // bytes

// Returns why the text must not be parsed: it is too long, or nested too deeply; "" if it may be.
// Whether it is JSON at all, the parser says.
std::string json_limit_exceeded(std::string_view text);

// Returns JSON of a value in one short line of ASCII, for messages. A file may call its values
// anything.
template <class Json>
std::string shown_json(const Json& value) {
  constexpr size_t kLongest = 80;
  std::string text = value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
  return text.size() <= kLongest ? text : text.substr(0, kLongest) + "...";
}

// Returns what the parser says about a text, which it quotes as it is, in one short line of ASCII.
std::string printable(std::string_view message);

}  // namespace aten_recompute
