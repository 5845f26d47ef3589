#include "runtime/one_line_errors.h"

#include <stdexcept>
#include <string>

#include "common/user_error.h"

namespace aten_recompute {
namespace {

[[noreturn]] void throw_with_prefix(const std::string& message) {
  const std::string prefix = kErrorPrefix;
  throw UserError(message.rfind(prefix, 0) == 0 ? message : prefix + message);
}

}  // namespace

void rethrow_as_invalid_argument() {
  try {
    rethrow_in_one_line();
  } catch (const UserError& error) {
    throw std::invalid_argument(error.what());
  }
}

void rethrow_in_one_line() {
  try {
    throw;
  } catch (const UserError& error) {
    throw_with_prefix(error.what());
  } catch (const std::invalid_argument& error) {
    throw_with_prefix(error.what());
  } catch (const std::runtime_error& error) {
    const std::string text = error.what();
    const std::string before = std::string("\nRuntimeError: ") + kErrorPrefix;
    const auto found = text.rfind(before);
    if (found == std::string::npos)
      throw;
    const auto begin = found + before.size();
    throw_with_prefix(text.substr(begin, text.find('\n', begin) - begin));
  }
}

}  // namespace aten_recompute
