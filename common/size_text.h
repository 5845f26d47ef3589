// Sizes as people read them, and as the options accept them.
#pragma once

#include <cstdint>
#include <string>

namespace aten_recompute {

// Returns the size that is nearest to `bytes`, such as "12.5 MiB", with `digits` digits behind the
// point.
std::string nearest_size(int64_t bytes, int digits = 1);

// Returns the size rounded up: it stands for `bytes` or a little more.
std::string size_at_least(int64_t bytes, int digits = 1);

}  // namespace aten_recompute
