// The one table of what a spec may say: every strategy, its keys, and what each key accepts.
// Parsing, error messages and the help text come from it.
#pragma once

#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/options.h"

namespace aten_recompute {

/// One key of a spec.
struct KeyRule {
  std::string_view name;
  std::string_view accepts;
  // Stores the value; false if it is not accepted.
  bool (*store)(const nlohmann::json& value, Options& options);
};

/// One strategy.
struct StrategyRule {
  StrategyKind kind;
  std::string_view name;
  std::string_view meaning;
  // {"3": [0, 2]} is short for {"strategy": "layers", "start": 0, "stride": 2}: one key that names
  // the strategy and carries its arguments. Several strategies have none, layers has two.
  std::vector<KeyRule> short_forms;
  std::vector<KeyRule> arguments;
  std::vector<KeyRule> extras;  // go with the short forms too
  bool needs_arguments;
};

/// The keys that go with every strategy, and without one.
const std::vector<KeyRule>& common_keys();

/// All strategies, in the order in which people should read them.
const std::vector<StrategyRule>& strategies();

/// The row of `kind`.
const StrategyRule& rule_of(StrategyKind kind);

/// The rule of the key `name`, or null.
const KeyRule* find_key(const std::vector<KeyRule>& keys, std::string_view name);

}  // namespace aten_recompute
