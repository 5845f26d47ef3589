#include "runtime/one_line_errors.h"

#include <memory>
#include <stdexcept>
#include <string>

#include "common/typed_errors.h"
#include "common/user_error.h"

namespace aten_recompute {
namespace {

// Returns the error that is being handled, with the prefix; nullptr if it is none that a user can
// mend.
std::shared_ptr<const Error> current_error() {
  std::shared_ptr<const Error> error;
  try {
    throw;
  } catch (const std::invalid_argument& thrown) {
    error = typed_error(thrown);
    if (error == nullptr)
      error = std::make_shared<Error>(thrown.what());
  } catch (const std::exception& thrown) {
    error = typed_error(thrown);
  } catch (...) {
  }
  const std::string prefix = kErrorPrefix;
  if (error == nullptr || std::string(error->what()).rfind(prefix, 0) == 0)
    return error;
  return error->with_message(prefix + error->what());
}

}  // namespace

void rethrow_as_invalid_argument() {
  if (const auto error = current_error())
    error->raise_as_invalid_argument();
  throw;
}

void rethrow_in_one_line() {
  if (const auto error = current_error())
    error->raise();
  throw;
}

}  // namespace aten_recompute
