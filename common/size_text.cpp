#include "common/size_text.h"

#include <cmath>
#include <cstdio>

namespace aten_recompute {
namespace {

std::string size_text(int64_t bytes, int digits, bool is_rounded_up) {
  constexpr int64_t kKiB = 1 << 10;
  constexpr int64_t kMiB = 1 << 20;
  if (bytes < kKiB)
    return std::to_string(bytes) + " B";
  const bool is_small = bytes < kMiB;
  const double per_unit = std::pow(10.0, digits) / static_cast<double>(is_small ? kKiB : kMiB);
  const double exact = static_cast<double>(bytes) * per_unit;
  const double rounded = is_rounded_up ? std::ceil(exact) : std::round(exact);
  char text[32];
  std::snprintf(text, sizeof(text), "%.*f %s", digits, rounded / std::pow(10.0, digits),
                is_small ? "KiB" : "MiB");
  return text;
}

}  // namespace

std::string nearest_size(int64_t bytes, int digits) {
  return size_text(bytes, digits, /*is_rounded_up=*/false);
}

std::string size_at_least(int64_t bytes, int digits) {
  return size_text(bytes, digits, /*is_rounded_up=*/true);
}

}  // namespace aten_recompute
