#include "common/did_you_mean.h"

#include <algorithm>
#include <iterator>

#include "common/lower_case.h"

namespace aten_recompute {
namespace {

// A suggestion that is wrong wastes more time than one that is missing.
constexpr size_t kMostSuggestions = 3;
constexpr size_t kShortestPart = 4;

// Returns how many letters have to be inserted, removed, replaced, or swapped with the next one.
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::vector<size_t>> steps(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) {
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        steps[i][j] = i + j;
        continue;
      }
      steps[i][j] = std::min({steps[i - 1][j] + 1, steps[i][j - 1] + 1,
                              steps[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        steps[i][j] = std::min(steps[i][j], steps[i - 2][j - 2] + 1);
    }
  }
  return steps.back().back();
}

std::vector<std::string> nearest(const std::string& given, const std::vector<std::string>& known) {
  std::vector<std::string> found;
  size_t least = std::max<size_t>(1, given.size() / 3);
  for (const auto& name : known) {
    const auto distance = edit_distance(given, lower_case(name));
    if (distance > least || distance >= name.size())
      continue;
    if (distance < least)
      found.clear();
    least = distance;
    found.push_back(name);
  }
  return found;
}

std::vector<std::string> with_part(const std::string& part, const std::vector<std::string>& known) {
  std::vector<std::string> found;
  if (part.size() >= kShortestPart) {
    std::copy_if(known.begin(), known.end(), std::back_inserter(found), [&](const auto& name) {
      return lower_case(name).find(part) != std::string::npos;
    });
  }
  return found;
}

}  // namespace

std::string did_you_mean(std::string_view given, const std::vector<std::string>& known) {
  constexpr size_t kLongest = 100;  // of a name that anybody could have mistyped
  const auto name = lower_case(given.substr(0, kLongest));
  auto found = nearest(name, known);
  if (found.empty())
    found = with_part(name, known);
  if (found.empty() || found.size() > kMostSuggestions)
    return "";
  std::string text = "; did you mean \"" + found[0] + '"';
  for (size_t i = 1; i < found.size(); ++i)
    text += (i + 1 == found.size() ? " or \"" : ", \"") + found[i] + '"';
  return text + "?";
}

}  // namespace aten_recompute
