#include "command/strategy.h"

#include "command/failure.h"

namespace aten_recompute::command {

void add_strategy(CLI::App& app, Strategy& strategy) {
  app.add_option("-s,--strategy", strategy.name,
                 wrapped("what is recomputed: budget, segments, min_cut, layers, all, names, ops, "
                         "none or plan (docs/options.md)"))
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
  if (!strategy.budget.empty() && !strategy.name.empty() && strategy.name != "budget")
    throw Failure(Exit::kBadArguments,
                  "--budget does not belong to strategy " + strategy.name + ", only to budget");
  for (const char* key : {"strategy", "memory_budget"}) {
    if (options.contains(key))
      throw Failure(Exit::kBadArguments,
                    std::string("--set ") + key + ": use --strategy and --budget");
  }
  options["strategy"] = strategy.name.empty() ? "budget" : strategy.name;
  if (!strategy.budget.empty()) {
    const auto number = nlohmann::json::parse(strategy.budget, nullptr, /*allow_exceptions=*/false);
    options["memory_budget"] = number.is_number() ? number : nlohmann::json(strategy.budget);
  }
  return options;
}

}  // namespace aten_recompute::command
