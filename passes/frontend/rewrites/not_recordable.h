// The error of a method whose path cannot be recorded.
#pragma once

#include <stdexcept>
#include <string>

namespace aten_recompute {

// Something in a method that a path cannot be recorded through. The method then keeps its control
// flow.
class NotRecordable : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace aten_recompute
