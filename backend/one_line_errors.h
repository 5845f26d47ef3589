// Errors of the user's that come up while TorchScript's interpreter runs.
//
// Whatever is thrown there comes out as one text: source lines of the method that ran, then the
// message. The source lines have nothing to do with a budget that cannot be kept. A prefix makes
// such messages known in the text, so that they can be had back as they were: by us, where a method
// of ours runs inside of another, and for Python by register/python_route.cpp.
#pragma once

namespace aten_recompute {

inline constexpr const char* kErrorPrefix = "aten_recompute: ";

// To be called where an exception is handled. A UserError or std::invalid_argument, or a text from
// the interpreter with the message of one in it, is thrown as a UserError that has the prefix;
// everything else as it is.
[[noreturn]] void rethrow_in_one_line();

}  // namespace aten_recompute
