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

// The call raises an error, so that it is on no path; other calls may be.
class CallRaises : public NotRecordable {
 public:
  explicit CallRaises(const std::string& where = "")
      : NotRecordable("this call raises an exception" + where) {}
};

}  // namespace aten_recompute
