// Errors that the caller of a lowered method has to fix, such as a budget that cannot be reached,
// or a plan that belongs to another model.
#pragma once

#include <stdexcept>
#include <string>

namespace aten_recompute {

// The message is one line. Invalid arguments throw std::invalid_argument instead. Where a program
// may want to know what went wrong, a class of aten_recompute/errors.h is thrown, which is a
// UserError as well (common/typed_errors.h).
struct UserError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Begins the messages of errors that go through TorchScript's interpreter, which turns every
// exception into one string: source lines of the method that ran, then the message. With the prefix
// the message can be cut out again.
inline constexpr const char* kErrorPrefix = "aten_recompute: ";

}  // namespace aten_recompute
