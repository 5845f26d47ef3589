// Which nodes and values of a problem play the same part: a network of equal blocks has as many of
// each as it has blocks, and a search decides about them together.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/model/problem.h"

namespace aten_recompute {

// Equal numbers: equal costs, and equal surroundings to a distance of some nodes; where that makes
// very many classes, the same operations in a row, of any size. A guess that searches may act on
// and have simulated, not a proof of isomorphism.
struct EquivalenceClasses {
  std::vector<uint64_t> of_node;  // alternatives included
  std::vector<uint64_t> of_value;
};

EquivalenceClasses classes_of(const Problem& problem);

}  // namespace aten_recompute
