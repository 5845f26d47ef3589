#include "runtime/out_of_memory.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <new>
#include <string_view>

namespace aten_recompute {

bool is_out_of_memory(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr)
    return true;
  // The allocator of the CPU throws a plain c10::Error.
  constexpr std::array<std::string_view, 4> kTexts{
      "can't allocate memory", "out of memory", "std::bad_alloc",
      // There are no addresses left for the stack of a thread.
      "Resource temporarily unavailable"};
  const std::string_view message = error.what();
  return std::any_of(kTexts.begin(), kTexts.end(), [&](std::string_view text) {
    return message.find(text) != std::string_view::npos;
  });
}

}  // namespace aten_recompute
