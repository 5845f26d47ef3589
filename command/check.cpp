// aten-recompute check: whether a step stays below a limit, as an exit status.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "command/arguments.h"
#include "command/failure.h"
#include "command/model_file.h"
#include "command/step_estimate.h"
#include "command/strategy.h"
#include "command/subcommands.h"
#include "command/texts.h"

namespace aten_recompute::command {
namespace {

using nlohmann::json;

struct CheckArguments : Arguments {
  std::string max_peak;
  std::string budget;
  std::string device = "cpu";
};

// Takes over the budget with which a file was lowered, and what changes the peak under it.
void take_options_of_file(CheckArguments& arguments) {
  const auto options =
      options_in_file(load_module(arguments.path, Tensors::kDescribed), arguments.method);
  const auto strategy = options.is_null() ? "none" : options.value("strategy", "none");
  if (strategy == "none")
    return;
  if (strategy != "budget" || !options.contains("memory_budget") ||
      options.contains("time_budget"))
    throw Failure(Exit::kStepFailed,
                  arguments.path + ": was lowered with strategy " + strategy +
                      (strategy == "budget" ? " and time_budget" : "") +
                      ", of which the peak is not known without a step; give --budget, or a file "
                      "that is not lowered");
  const auto& budget = options["memory_budget"];
  arguments.budget = budget.is_string() ? budget.get<std::string>() : budget.dump();
  for (const auto& [key, value] : options.items()) {
    if (key != "strategy" && key != "memory_budget" && key != "plan")
      arguments.settings.push_back(key + "=" + value.dump());
  }
}

void run(CheckArguments arguments) {
  const auto limit = read_bytes("--max-peak", arguments.max_peak);
  if (arguments.budget.empty())
    take_options_of_file(arguments);
  std::vector<std::string> budgets;
  if (!arguments.budget.empty())
    budgets.push_back(arguments.budget);
  const auto estimate = estimate_step(arguments, budgets, arguments.device);
  check_reachable(estimate);
  const auto peak = budgets.empty() ? estimate["unplanned_peak_bytes"].get<int64_t>()
                                    : estimate["budgets"][0]["peak_bytes"].get<int64_t>();
  const auto smallest = estimate["smallest_peak_bytes"].get<int64_t>();
  const bool passed = peak <= limit;
  const auto what = arguments.path + ": one step of " + arguments.method +
                    (budgets.empty() ? "" : " with budget " + arguments.budget) + " peaks at " +
                    byte_text(peak);
  if (arguments.json)
    print({{"passed", passed},
           {"peak_bytes", peak},
           {"max_peak_bytes", limit},
           {"budget", budgets.empty() ? json() : json(arguments.budget)},
           {"unplanned_peak_bytes", estimate["unplanned_peak_bytes"]},
           {"smallest_peak_bytes", smallest}});
  else if (passed)
    std::printf("%s, which is not above %s\n", what.c_str(), byte_text(limit).c_str());
  if (!passed)
    throw Failure(Exit::kCheckFailed, what + ", above the limit of " + byte_text(limit) +
                                          "; the smallest peak by recomputation is " +
                                          byte_text(smallest));
}

}  // namespace

void add_check(CLI::App& program) {
  const auto arguments = std::make_shared<CheckArguments>();
  auto* const app = program.add_subcommand(
      "check", "Tells by its exit status whether a training step stays below a limit.");
  add_file(*app, *arguments);
  add_call(*app, *arguments);
  app->add_option("--max-peak", arguments->max_peak, "the limit, such as 2GiB")
      ->required()
      ->type_name("SIZE");
  app->add_option("-b,--budget", arguments->budget,
                  wrapped("the budget of the step, as for lower; by default the one that the file "
                          "was lowered with, and none for a file that is not lowered"))
      ->type_name("BUDGET");
  add_device(*app, arguments->device);
  add_settings(*app, *arguments);
  app->footer(
      "Nothing runs and nothing is allocated, as with estimate. Exit status 1: the peak is above\n"
      "the limit. Exit status 5: no plan keeps the budget.\n\n"
      "Example:\n"
      "  aten-recompute check gpt.pt --input 'int64[8,512]' --input 'int64[8,512]' --max-peak "
      "2GiB");
  app->callback([arguments] { run(*arguments); });
}

}  // namespace aten_recompute::command
