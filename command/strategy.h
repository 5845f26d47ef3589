// The strategy of a subcommand, and its options.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <string>

#include "command/arguments.h"

namespace aten_recompute::command {

struct Strategy {
  std::string name;
  std::string budget;  // memory_budget, as it was typed; "" if there is none
};

// Adds --strategy and --budget.
void add_strategy(CLI::App& app, Strategy& strategy);

// Returns the options of lower(): the strategy, the budget and what --set gives. Throws
// Failure(kBadArguments) if there is no strategy, or a budget that the strategy does not have.
nlohmann::json options_of(const Strategy& strategy, const Arguments& arguments);

}  // namespace aten_recompute::command
