#include "rules/rule.h"

#include <sstream>

namespace aten_recompute {

std::string layout_of(const std::string& argument) {
  return "recompute.stand_in(recompute.layout(" + argument + "))";
}

std::vector<std::string> split_names(const std::string& names) {
  std::vector<std::string> result;
  std::istringstream stream(names);
  for (std::string name; std::getline(stream >> std::ws, name, ',');)
    result.push_back(name);
  return result;
}

}  // namespace aten_recompute
