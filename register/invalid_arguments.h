// Makes errors about what the user gave recognizable in Python. Since PyTorch 2.15, its bindings
// turn every C++ exception of an operator into a RuntimeError; before, std::invalid_argument became
// a ValueError.
#pragma once

#include <stdexcept>
#include <utility>

#include "common/typed_errors.h"

namespace aten_recompute {

// Returns a function that calls `function` and remembers the std::invalid_argument that it throws.
// Python asks for it by its message (describe_error, python/aten_recompute/_errors.py).
template <auto function>
constexpr auto checked() {
  return []<class Result, class... Arguments>(Result (*)(Arguments...)) {
    return [](Arguments... arguments) -> Result {
      try {
        return function(std::forward<Arguments>(arguments)...);
      } catch (const std::invalid_argument& error) {
        remember_invalid_argument(error);
        throw;
      }
    };
  }(function);
}

}  // namespace aten_recompute
