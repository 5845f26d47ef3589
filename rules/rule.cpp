#include "rules/rule.h"

#include <sstream>

namespace aten_recompute {

std::string layout_of(const std::string& argument) {
  return "recompute.stand_in(recompute.layout(" + argument + "))";
}

std::string reduced(const std::string& argument, const std::string& gradient) {
  return "recompute.reduce_grad(" + gradient + ", " + argument + ".size(), " + argument + ".dtype)";
}

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> result;
  std::istringstream stream(names);
  for (std::string name; std::getline(stream >> std::ws, name, ',');)
    result.push_back(name);
  return result;
}

}  // namespace aten_recompute
