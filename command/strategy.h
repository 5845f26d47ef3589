// The strategy of a subcommand, and its options.
#pragma once

#include <torch/csrc/jit/api/module.h>
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

// Returns the options that the method of a loaded module was lowered with; null if it is not.
nlohmann::json options_in_file(const torch::jit::Module& module, const std::string& method);

}  // namespace aten_recompute::command
