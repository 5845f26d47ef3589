// Throws errors of the public classes (aten_recompute/errors.h), and finds them again after
// TorchScript's interpreter has turned them into strings.
//
// The interpreter rethrows every exception as a std::runtime_error that has the message at its end.
// So each error that is thrown here is remembered by its message, and found by it. Python gets its
// errors the same way: PyTorch's bindings pass on nothing but the string.
#pragma once

#include <aten_recompute/errors.h>

#include <memory>
#include <stdexcept>
#include <string>

namespace aten_recompute {

// Returns the last error that was thrown with this message, with or without kErrorPrefix; of this
// thread, if it threw one. Returns nullptr if there is none among the last kRememberedErrors ones.
constexpr size_t kRememberedErrors = 64;
std::shared_ptr<const Error> remembered_error(const std::string& message);

// Remembers what was wrong with an argument, unless an error with this message is remembered. An
// error of no more special class than Error that is found by its message is such a one.
void remember_invalid_argument(const std::invalid_argument& error);

// Returns the message in a text of TorchScript's interpreter, kErrorPrefix included; "" if the text
// is none, or its error is none of this library's.
std::string message_in_interpreter_text(const std::string& text);

}  // namespace aten_recompute
