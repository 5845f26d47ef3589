// An error that the caller of a lowered method has to fix: a budget that cannot be reached, or a
// plan that belongs to another model.
#pragma once

#include <stdexcept>

namespace aten_recompute {

// The message is one line. Invalid arguments throw std::invalid_argument instead.
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace aten_recompute
