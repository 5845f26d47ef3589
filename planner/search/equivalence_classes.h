// Which nodes and values of a problem correspond to each other. A network of equal blocks has one
// of each kind in every block, and a search decides about them together.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/model/problem.h"

namespace aten_recompute {

// Nodes or values with equal numbers have equal costs and equal surroundings to a distance of some
// nodes. Where that makes very many classes, sizes do not count. Equal numbers are no proof of
// isomorphism; searches simulate what they conclude from them.
struct EquivalenceClasses {
  std::vector<uint64_t> of_node;  // alternatives included
  std::vector<uint64_t> of_value;
};

EquivalenceClasses classes_of(const Problem& problem);

}  // namespace aten_recompute
