// The table of everything that a spec may contain: each strategy, its keys, and what each key
// accepts. Parsing, error messages, the help text and the JSON of options are all derived from it.
#pragma once

#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "common/options.h"

namespace aten_recompute {

// Describes one key of a spec.
struct KeyRule {
  std::string_view name;
  std::string_view accepts;  // for messages, e.g. "an integer >= 0"
  // Stores the value in `options`. Returns false if the value is not accepted.
  bool (*store)(const nlohmann::json& value, Options& options);
  // Returns the value that `options` has; null where it is the default, which nobody has to write.
  nlohmann::json (*show)(const Options& options) = nullptr;
};

// Describes one strategy and the keys that a spec may give beside it.
struct StrategyRule {
  StrategyKind kind;
  std::string_view name;
  std::string_view meaning;
  // A short form is one key that names the strategy and carries its arguments: {"3": [0, 2]} is
  // short for {"strategy": "layers", "start": 0, "stride": 2}. A strategy may have several or none.
  std::vector<KeyRule> short_forms;
  std::vector<KeyRule> arguments;
  std::vector<KeyRule> extras;  // also allowed beside a short form
  bool needs_arguments;         // all of `arguments` must be given
  StrategyTraits traits;
};

// Returns the keys that are allowed with every strategy, and without one.
const std::vector<KeyRule>& common_keys();

// Returns all strategies, in the order in which messages and the help text list them.
const std::vector<StrategyRule>& strategies();

// Returns the row of `kind`. Throws std::logic_error if the table has none.
const StrategyRule& rule_of(StrategyKind kind);

// Returns the rule of the key `name`, or nullptr.
const KeyRule* find_key(const std::vector<KeyRule>& keys, std::string_view name);

}  // namespace aten_recompute
