#include "command/strategy.h"

#include <aten_recompute/aten_recompute.h>

#include <string>
#include <vector>

#include "command/described_options.h"
#include "command/failure.h"
#include "common/option_table.h"

namespace aten_recompute::command {
namespace {

// Returns the names of all strategies, with that of --budget first.
std::vector<std::string> strategy_names() {
  std::vector<std::string> names;
  for (const auto& rule : strategies())
    names.insert(rule.traits.keeps_budget ? names.begin() : names.end(), std::string(rule.name));
  return names;
}

// Returns the name of the strategy that --budget belongs to.
std::string name_with_budget() {
  return strategy_names().front();
}

}  // namespace

void add_strategy(CLI::App& app, Strategy& strategy) {
  app.add_option("-s,--strategy", strategy.name, wrapped("what is recomputed (docs/options.md)"))
      ->check(suggestions(strategy_names()))
      ->type_name("NAME");
  app.add_option("-b,--budget", strategy.budget,
                 wrapped("the limit of strategy budget, which need not be named then: 0.5, 40% or "
                         "600MiB"))
      ->type_name("BUDGET");
}

nlohmann::json options_of(const Strategy& strategy, const Arguments& arguments) {
  auto options = options_of(arguments);
  if (strategy.name.empty() && strategy.budget.empty())
    throw Failure(Exit::kBadArguments, "--strategy or --budget is required");
  if (!strategy.budget.empty() && !strategy.name.empty() && strategy.name != name_with_budget())
    throw Failure(Exit::kBadArguments, "--budget does not belong to strategy " + strategy.name +
                                           ", only to " + name_with_budget());
  for (const char* key : {"strategy", "memory_budget"}) {
    if (options.contains(key))
      throw Failure(Exit::kBadArguments,
                    std::string("--set ") + key + ": use --strategy and --budget");
  }
  options["strategy"] = strategy.name.empty() ? name_with_budget() : strategy.name;
  if (!strategy.budget.empty()) {
    const auto number = nlohmann::json::parse(strategy.budget, nullptr, /*allow_exceptions=*/false);
    options["memory_budget"] = number.is_number() ? number : nlohmann::json(strategy.budget);
  }
  return options;
}

nlohmann::json options_in_file(const torch::jit::Module& module, const std::string& method) {
  try {
    const auto reported = nlohmann::json::parse(report(module));
    for (const auto& each : reported["methods"]) {
      if (each["method"] == method)
        return each["options"];
    }
  } catch (const NotLoweredError&) {
  }
  return nullptr;
}

}  // namespace aten_recompute::command
