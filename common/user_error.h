// What whoever calls a lowered method has to mend: a budget that cannot be kept, a plan of another
// model.
#pragma once

#include <stdexcept>

namespace aten_recompute {

// Of one line. Wrong arguments, which come up in the same places, are std::invalid_argument.
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace aten_recompute
