// Which modules a picture shows as single boxes, and which it opens.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "backend/pictures/draw_operators.h"

namespace aten_recompute::drawing {

// Graphs with more operators than this are collapsed; so is a layer that was asked for if it has
// more than the second number.
inline constexpr size_t kMostOperators = 60;
inline constexpr size_t kMostOperatorsOfLayer = 150;
// As many boxes are fine where no layers are known, before modules are collapsed.
inline constexpr size_t kMostBoxes = 40;
// Operators of one module that lie beside its submodules are shown one by one up to this number;
// more are shown in stretches, of which there are at most as many as the second number.
inline constexpr size_t kMostOwnOperators = 40;
inline constexpr size_t kMostStretches = 20;

// The modules that operators belong to.
struct ModuleTree {
  std::map<std::string, ModuleTree> children;
  size_t num_operators = 0;      // inside, submodules included
  size_t num_own_operators = 0;  // not in a submodule
  bool is_expanded = false;

  // What the operators of a module are drawn as: the cluster that they are in, and the title of the
  // box that stands for all of them; "" where each is drawn.
  struct Place {
    std::string cluster;
    std::string title;
  };
  Place place_of(const std::string& path) const;
};

// Returns the modules of these operators. A small graph is shown in full; otherwise layers and the
// modules beside them are collapsed. `layer`, if it is not "", is a module that is opened. Throws
// std::invalid_argument if there is none of that path.
ModuleTree choose_expanded(const Operators& operators, const std::string& layer);

}  // namespace aten_recompute::drawing
