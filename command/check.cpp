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
  if (strategy != "budget" || !options.contains("memory_budget") || options.contains("time_budget"))
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

// Returns the peak that a step under the budget may have. The figures are of the plan that is the
// fastest by counts of operations; a step plans by measured times, so that it may take any peak
// that the budget allows.
int64_t peak_under(const json& budget, int64_t unplanned) {
  return std::max(budget["peak_bytes"].get<int64_t>(),
                  std::min(budget["budget_bytes"].get<int64_t>(), unplanned));
}

void run_check(CheckArguments arguments) {
  const auto limit = read_bytes("--max-peak", arguments.max_peak);
  if (arguments.budget.empty())
    take_options_of_file(arguments);
  std::vector<std::string> budgets;
  if (!arguments.budget.empty())
    budgets.push_back(arguments.budget);
  const auto estimate = estimate_step(arguments, budgets, arguments.device);
  check_reachable(estimate);
  const auto unplanned = estimate["unplanned_peak_bytes"].get<int64_t>();
  const auto predicted =
      budgets.empty() ? unplanned : estimate["budgets"][0]["peak_bytes"].get<int64_t>();
  const auto peak = budgets.empty() ? unplanned : peak_under(estimate["budgets"][0], unplanned);
  const auto smallest = estimate["smallest_peak_bytes"].get<int64_t>();
  const bool passed = peak <= limit;
  const auto what =
      arguments.path + ": one step of " + arguments.method +
      (budgets.empty() ? "" : " with budget " + arguments.budget) +
      (peak == predicted ? " peaks at "
                         : " is predicted to peak at " + byte_text_beside(predicted, peak) +
                               " and may peak at ") +
      byte_text_beside(peak, limit);
  if (arguments.json)
    print({{"passed", passed},
           {"peak_bytes", peak},
           {"predicted_peak_bytes", predicted},
           {"max_peak_bytes", limit},
           {"budget", budgets.empty() ? json() : json(arguments.budget)},
           {"unplanned_peak_bytes", estimate["unplanned_peak_bytes"]},
           {"smallest_peak_bytes", smallest}});
  else if (passed)
    std::printf("%s, which is not above %s\n", what.c_str(), byte_text_beside(limit, peak).c_str());
  if (!passed)
    throw Failure(Exit::kCheckFailed, what + ", above the limit of " +
                                          byte_text_beside(limit, peak) +
                                          "; the smallest peak by recomputation is " +
                                          byte_text_beside(smallest, limit));
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
      "the limit. Exit status 5: no plan keeps the budget. With a budget, the limit is compared "
      "with\n"
      "the larger of the predicted peak and the budget, because a step may use all of its "
      "budget.\n\n"
      "Example:\n"
      "  aten-recompute check gpt.pt --input 'int64[8,512]' --input 'int64[8,512]' --max-peak "
      "2GiB");
  app->callback([arguments] { run_check(*arguments); });
}

}  // namespace aten_recompute::command
