// Forward and backward of compiled regions as a picture: what is kept, dropped and recomputed.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "backend/autograd/compiled_region.h"
#include "backend/pictures/draw_dot.h"
#include "backend/pictures/draw_operators.h"

namespace aten_recompute {

// One run of a region.
struct DrawnRegion {
  std::string name;
  std::shared_ptr<const CompiledRegion> compiled_region;
  std::vector<bool> is_attribute;  // per input: it was read from the module
};

// A value that one run hands to a later one, by its names in both.
struct DrawnHandover {
  size_t from_region = 0;
  std::string from;
  size_t to_region = 0;
  std::string to;
};

// Returns the graph of what runs. The forward runs downwards. In a joint picture the backward is
// beside it and runs upwards.
//
// Modules are clusters. In a graph of many operators, layers and the modules beside them are single
// boxes, unless `layer`, the path of a module such as "encoder.layers.3", asks for what is inside
// of it. That is then shown with its neighbors only. Throws std::invalid_argument, with the
// beginning of names that exist, if no operator belongs to such a module.
DotGraph draw_graph(const std::vector<DrawnRegion>& regions,
                    const std::vector<DrawnHandover>& handovers, DrawnPart part,
                    const std::string& layer, const std::string& title);

// Returns the graph of one forward and its backward. `problem` has the sizes, or is nullptr.
DotGraph draw_graph(const torch::jit::Gradient& gradient, const Problem* problem,
                    const std::vector<bool>& is_attribute, DrawnPart part,
                    const std::string& title);

}  // namespace aten_recompute
