// aten-recompute estimate: what a step takes, before it runs.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "command/arguments.h"
#include "command/step_estimate.h"
#include "command/subcommands.h"
#include "command/texts.h"

namespace aten_recompute::command {
namespace {

using nlohmann::json;

struct EstimateArguments : Arguments {
  std::vector<std::string> budgets;
  std::string device = "cpu";
};

std::vector<std::string> row(const std::string& name, const json& figures, int64_t unplanned) {
  const auto peak = figures["peak_bytes"].get<int64_t>();
  return {name,
          byte_text(peak),
          share_text(peak, unplanned),
          byte_text(figures["saved_bytes"].get<int64_t>()),
          flop_text(figures["recomputed_flops"].get<double>()),
          factor_text(figures["time_factor"].get<double>())};
}

void print_estimate(const EstimateArguments& arguments, const json& result) {
  const auto unplanned = result["unplanned_peak_bytes"].get<int64_t>();
  std::printf("%s: one step of %s on %s, %s forward and %s backward\n\n", arguments.path.c_str(),
              arguments.method.c_str(), result["device"].get<std::string>().c_str(),
              flop_text(result["forward_flops"].get<double>()).c_str(),
              flop_text(result["backward_flops"].get<double>()).c_str());
  Table table({"plan", "peak", "of all", "kept", "recomputed", "time"});
  table.add(row("no recomputation",
                {{"peak_bytes", unplanned},
                 {"saved_bytes", result["unplanned_saved_bytes"]},
                 {"recomputed_flops", 0.0},
                 {"time_factor", 1.0}},
                unplanned));
  for (const auto& budget : result["budgets"]) {
    const auto name = "budget " + budget["budget"].get<std::string>();
    if (!budget.contains("peak_bytes"))
      table.add({name, "unreachable"});
    else  // with the option "unreachable", a plan near the smallest peak
      table.add(
          row(name + (budget["reachable"].get<bool>() ? "" : " (leanest)"), budget, unplanned));
  }
  table.add(row("smallest peak", result["smallest"], unplanned));
  table.print();
}

void run_estimate(const EstimateArguments& arguments) {
  const auto result = estimate_step(arguments, arguments.budgets, arguments.device);
  if (arguments.json)
    print(result);
  else
    print_estimate(arguments, result);
  check_reachable(result);
}

}  // namespace

void add_estimate(CLI::App& program) {
  const auto arguments = std::make_shared<EstimateArguments>();
  auto* const app = program.add_subcommand(
      "estimate", "Predicts the peak memory of a training step without running it.");
  add_file(*app, *arguments);
  add_call(*app, *arguments);
  add_budgets(*app, arguments->budgets);
  add_device(*app, arguments->device);
  add_settings(*app, *arguments);
  app->footer(
      "Nothing runs and nothing of the size of the model is allocated. The peak is that of one "
      "step\n(forward and backward) above what is in memory before it. \"kept\" is alive between "
      "forward\nand backward, and \"time\" is a multiple of a step without recomputation, computed "
      "from\noperations and bytes. Exit status 5: a budget cannot be reached.\n\n"
      "Example:\n"
      "  aten-recompute estimate resnet.pt --input 'float32[8,3,224,224]' --budget 0.5,600MiB");
  app->callback([arguments] { run_estimate(*arguments); });
}

}  // namespace aten_recompute::command
