// One-line messages for a user's errors that are thrown while TorchScript's interpreter runs.
//
// The interpreter turns every exception into one string: source lines of the method that ran, then
// the message. The source lines have nothing to do with a budget that cannot be kept. A prefix
// marks such messages, so that they can be cut out of the string again: here, where a lowered
// method runs inside another one, and for Python in register/python_route.cpp. The class of the
// error is found again by its message (common/typed_errors.h).
#pragma once

namespace aten_recompute {

// Needs to be called while an exception is handled. Throws an Error (aten_recompute/errors.h) that
// is a UserError, with kErrorPrefix, if the exception is an Error, a UserError or a
// std::invalid_argument, or the interpreter's error with the message of one in it. Otherwise throws
// the same exception again.
[[noreturn]] void rethrow_in_one_line();

// Does the same, but what is thrown is a std::invalid_argument in place of a UserError: for
// functions that check arguments.
[[noreturn]] void rethrow_as_invalid_argument();

}  // namespace aten_recompute
