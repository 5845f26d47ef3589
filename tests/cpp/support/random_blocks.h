// Blocks of random sizes and lifetimes, for tests of places in an arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "planner/addresses/place_blocks.h"

namespace aten_recompute {

// Returns blocks of up to `most_bytes` that live for up to 40 of 200 steps. Equal arguments give
// equal blocks.
inline std::vector<Block> random_blocks(unsigned seed, size_t count, unsigned most_bytes = 5000) {
  std::mt19937 random(seed);
  std::vector<Block> blocks;
  for (size_t i = 0; i < count; ++i) {
    const auto begin = static_cast<int32_t>(random() % 200);
    blocks.push_back({static_cast<int64_t>(random() % most_bytes), begin,
                      begin + static_cast<int32_t>(random() % 40)});
  }
  return blocks;
}

}  // namespace aten_recompute
