// Errors of LibTorch in one line. Header-only, for programs that open the library with dlopen, too.
//
//   try {
//     loss = lowered.forward({tokens, targets}).toTensor();
//   } catch (const std::exception& error) {
//     std::cerr << aten_recompute::one_line(error) << '\n';
//   }
//
// TorchScript's interpreter turns every error inside a method into a text of many lines, which
// begins with the source of the method. What went wrong stands at its end.
#pragma once

#include <c10/util/Exception.h>

#include <algorithm>
#include <cctype>
#include <cstddef>
#include <exception>
#include <string>

namespace aten_recompute {

namespace detail {

/// Returns the length of "ValueError: ", or of the name of another error, at the beginning of
/// `line`; 0 if there is none.
inline std::size_t length_of_error_name(const std::string& line) {
  const auto is_in_name = [](unsigned char c) { return std::isalnum(c) || c == '_' || c == '.'; };
  const auto end = static_cast<std::size_t>(std::find_if_not(line.begin(), line.end(), is_in_name) -
                                            line.begin());
  return end > 0 && line.compare(end, 2, ": ") == 0 ? end + 2 : 0;
}

/// Returns the first line of the error that an interpreter's text ends with: the first one behind
/// the last line of source that begins with the name of an error; "" if there is none.
inline std::string cause_of(const std::string& text) {
  const std::string mark = "<--- HERE";  // ends each piece of source
  auto begin = text.rfind(mark);
  begin = begin == std::string::npos ? 0 : begin + mark.size();
  // Where no source is known, the interpreter's header stands here once for each interpreter that
  // the error went through.
  const std::string header = "The following operation failed in the TorchScript interpreter.";
  while (begin < text.size()) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const auto line = text.substr(begin, end - begin);
    const auto name = length_of_error_name(line);
    if (name > 0 && line.compare(name, header.size(), header) != 0)
      return line.compare(0, name, "RuntimeError: ") == 0 ? line.substr(name) : line;
    begin = end + 1;
  }
  return "";
}

}  // namespace detail

/// Returns the message of an error in one line: what went wrong, without the source of a method, a
/// backtrace, and advice about damaged downloads. Errors of lowered modules that a user can mend
/// begin with "aten_recompute: ".
inline std::string one_line(const std::exception& error) {
  const auto* const torch_error = dynamic_cast<const c10::Error*>(&error);
  std::string text = torch_error != nullptr ? torch_error->what_without_backtrace() : error.what();
  const std::string header = "The following operation failed in the TorchScript interpreter";
  if (text.compare(0, header.size(), header) == 0) {
    if (auto cause = detail::cause_of(text); !cause.empty())
      return cause;
  }
  text.erase(0, std::min(text.find_first_not_of('\n'), text.size()));
  text.erase(std::min(text.find('\n'), text.size()));
  text.erase(std::min(text.find(". This is an internal miniz error"), text.size()));
  return text;
}

}  // namespace aten_recompute
