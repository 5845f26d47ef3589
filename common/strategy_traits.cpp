#include "common/strategy_traits.h"

#include "common/option_table.h"

namespace aten_recompute {

const StrategyTraits& traits_of(const Options& options) {
  return rule_of(options.strategy).traits;
}

Options without_recomputation(Options options) {
  options.strategy = StrategyKind::kNone;
  return options;
}

}  // namespace aten_recompute
