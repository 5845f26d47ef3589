#include "tests/hostile/mutate.h"

#include <algorithm>

namespace aten_recompute::hostile {
namespace {

const std::vector<std::string> kNumbers = {"0",
                                           "-1",
                                           "1",
                                           "63",
                                           "64",
                                           "2147483647",
                                           "2147483648",
                                           "-2147483649",
                                           "4294967296",
                                           "9223372036854775807",
                                           "9223372036854775808",
                                           "1e308",
                                           "1e309",
                                           "-1e308",
                                           "1e-400",
                                           "0.5",
                                           "-0.0",
                                           "18446744073709551615",
                                           "99999999999999999999999999"};

const std::vector<std::string> kTokens = {"{",
                                          "}",
                                          "[",
                                          "]",
                                          ":",
                                          ",",
                                          "\"",
                                          "\\",
                                          "null",
                                          "true",
                                          "{}",
                                          "[]",
                                          "\"\"",
                                          "\"\\u0000\"",
                                          "\"\\ud800\"",
                                          "NaN",
                                          "-",
                                          "e",
                                          "[[]]",
                                          "\xff",
                                          std::string(1, '\0'),
                                          "\xef\xbb\xbf",
                                          "/dev/zero",
                                          "\"/dev/zero\"",
                                          "\"strategy\":\"budget\"",
                                          "\"plan\":",
                                          "\"memory_budget\":\"1e308TiB\"",
                                          "(((((((((((((",
                                          "(a*)*b",
                                          "%",
                                          "\"alternatives\":[[0]]",
                                          "\"drop\":",
                                          "\"handed\":[0]"};

bool is_of_number(char c) {
  return (c >= '0' && c <= '9') || c == '-' || c == '.' || c == 'e';
}

}  // namespace

std::string Mutator::next() {
  auto text = draw_from(corpus_);
  if (draw(64) == 0)
    return text;
  const auto count = 1 + draw(4);
  for (size_t i = 0; i < count; ++i)
    change(text);
  return text;
}

void Mutator::change(std::string& text) {
  const auto place = place_in(text);
  switch (draw(10)) {
    case 0:
      text.resize(place);
      break;
    case 1:
      if (!text.empty())
        text[draw(text.size())] ^= static_cast<char>(1 << draw(8));
      break;
    case 2:
    case 3:
      change_number(text);
      break;
    case 4:
      text.insert(place, draw_from(kTokens));
      break;
    case 5:
      text.erase(place, 1 + draw(32));
      break;
    case 6: {
      const auto& other = draw_from(corpus_);
      text.insert(place, other.substr(place_in(other), 1 + draw(256)));
      break;
    }
    case 7: {
      // One part of the text takes the place of another one.
      const auto part = text.substr(place_in(text), 1 + draw(64));
      text.replace(place, part.size(), part);
      break;
    }
    case 8:
      nest(text);
      break;
    default:
      repeat(text);
  }
}

// Puts another number in the place of one.
void Mutator::change_number(std::string& text) {
  const auto from = place_in(text);
  const auto begin = std::find_if(text.begin() + static_cast<std::ptrdiff_t>(from), text.end(),
                                  [](char c) { return c >= '0' && c <= '9'; });
  const auto end = std::find_if_not(begin, text.end(), is_of_number);
  text.replace(begin, end, draw(3) == 0 ? std::to_string(draw(64)) : draw_from(kNumbers));
}

// Opens many lists or objects, closed again or not.
void Mutator::nest(std::string& text) {
  static const std::vector<std::pair<std::string, std::string>> kinds = {
      {"[", "]"}, {"{\"a\":", "}"}, {"(", ")"}, {"\"[", "\""}};
  const auto& [open, close] = draw_from(kinds);
  const size_t depth = size_t{1} << draw(17);
  std::string inner;
  for (size_t i = 0; i < depth; ++i)
    inner += open;
  if (draw(2) == 0) {
    inner += "1";
    for (size_t i = 0; i < depth; ++i)
      inner += close;
  }
  text.insert(place_in(text), inner);
}

// Says a part of the text many times.
void Mutator::repeat(std::string& text) {
  constexpr size_t kLongest = 1 << 20;
  const auto place = place_in(text);
  const auto part = text.substr(place, 1 + draw(40));
  const auto times = std::min(size_t{1} << draw(15), kLongest / (part.size() + 1));
  std::string all;
  for (size_t i = 0; i < times; ++i)
    all += part;
  text.insert(place, all);
}

}  // namespace aten_recompute::hostile
