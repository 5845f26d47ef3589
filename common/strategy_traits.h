// Finds the traits of a strategy.
#pragma once

#include "common/options.h"

namespace aten_recompute {

// Returns the traits of the strategy that these options choose.
const StrategyTraits& traits_of(const Options& options);

// Returns the options with the strategy that keeps everything in place of theirs.
Options without_recomputation(Options options);

}  // namespace aten_recompute
