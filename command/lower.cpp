// aten-recompute lower: writes a file that trains in less memory.
#include <aten_recompute/aten_recompute.h>

#include <cstdio>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "command/arguments.h"
#include "command/failure.h"
#include "command/model_file.h"
#include "command/output_file.h"
#include "command/step_estimate.h"
#include "command/strategy.h"
#include "command/subcommands.h"
#include "command/texts.h"

namespace aten_recompute::command {
namespace {

using nlohmann::json;

struct LowerArguments : Arguments {
  std::string output;
  Strategy strategy;
  std::vector<std::string> methods;
  std::string layers;
};

// Throws Failure(kBudgetUnreachable) if no plan keeps the budget for these inputs.
void check_budget(LowerArguments arguments) {
  arguments.method = arguments.methods.front();
  check_reachable(estimate_step(arguments, {arguments.strategy.budget}));
}

void run_lower(const LowerArguments& arguments) {
  const auto options = with_plan_file(options_of(arguments.strategy, arguments));
  check_output(arguments.output, files_beside(arguments));  // the module may be replaced
  auto module = load_module(arguments.path, Tensors::kReal);
  if (arguments.train)
    module.train();
  for (const auto& method : arguments.methods)
    find_method(module, method);
  const auto lowered = lower(module, options.dump(), arguments.methods, arguments.layers);
  if (!arguments.inputs.empty() && !arguments.strategy.budget.empty())
    check_budget(arguments);
  OutputFile file(arguments.output);
  // LibTorch ends the process where its stream cannot write, so it gets one that always can.
  std::ostringstream content;
  lowered.save(content);
  file.write(content.view());
  file.commit();
  if (arguments.json)
    print({{"file", arguments.output}, {"methods", arguments.methods}, {"options", options}});
  else
    std::printf("%s: written\n", arguments.output.c_str());
}

}  // namespace

void add_lower(CLI::App& program) {
  const auto arguments = std::make_shared<LowerArguments>();
  arguments->methods = {"forward"};
  auto* const app =
      program.add_subcommand("lower", "Writes a module that recomputes in its backward.");
  add_file(*app, *arguments);
  app->add_option("output", arguments->output, "the file to write")->required()->type_name("FILE");
  add_strategy(*app, arguments->strategy);
  add_settings(*app, *arguments);
  add_repeatable(*app, "--method", arguments->methods,
                 "a method to lower, forward by default; repeat the option for more")
      ->type_name("NAME");
  app->add_option("--layers", arguments->layers,
                  wrapped("a regular expression: modules whose whole path matches are the layers "
                          "of strategies layers and all"))
      ->type_name("REGEX");
  add_repeatable(*app, "-i,--input", arguments->inputs,
                 "an argument of the method, as for estimate: with a budget, nothing is written if "
                 "no plan keeps the budget for such inputs (exit status 5)")
      ->type_name("VALUE");
  app->add_flag("--train", arguments->train, "switch the module to training first");
  app->footer(
      "The file holds TorchScript. torch::jit::load reads it in any program that has loaded this\n"
      "library, and aten_recompute.load in Python. Plans are made by its first training step.\n\n"
      "Examples:\n"
      "  aten-recompute lower gpt.pt small.pt --budget 600MiB\n"
      "  aten-recompute lower gpt.pt small.pt --strategy layers --set stride=2");
  app->callback([arguments] { run_lower(*arguments); });
}

}  // namespace aten_recompute::command
