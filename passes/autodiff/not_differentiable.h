// The error of a region that cannot be differentiated ahead of time.
#pragma once

#include <stdexcept>

namespace aten_recompute {

// The region has to run under ordinary autograd; what() says why.
struct NotDifferentiable : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace aten_recompute
