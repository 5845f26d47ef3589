// One-line messages for a user's errors that are thrown while TorchScript's interpreter runs.
//
// The interpreter turns every exception into one string: source lines of the method that ran, then
// the message. The source lines have nothing to do with a budget that cannot be kept. A prefix
// marks such messages, so that they can be cut out of the string again: here, where a lowered
// method runs inside another one, and for Python in register/python_route.cpp.
#pragma once

namespace aten_recompute {

inline constexpr const char* kErrorPrefix = "aten_recompute: ";

// Needs to be called while an exception is handled. Throws a UserError with the prefix if that is a
// UserError or std::invalid_argument, or the interpreter's error with the message of one in it.
// Otherwise throws the same exception again.
[[noreturn]] void rethrow_in_one_line();

// Does the same, but throws std::invalid_argument in place of UserError: for functions that check
// arguments.
[[noreturn]] void rethrow_as_invalid_argument();

}  // namespace aten_recompute
