// aten-recompute draw: pictures of what a step runs, and traces of it for viewers.
#include <aten_recompute/aten_recompute.h>
#include <aten_recompute/traces.h>

#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include "command/arguments.h"
#include "command/failure.h"
#include "command/inputs.h"
#include "command/model_file.h"
#include "command/output_file.h"
#include "command/step.h"
#include "command/strategy.h"
#include "command/subcommands.h"

namespace aten_recompute::command {
namespace {

struct DrawArguments : Arguments {
  std::string output;
  Strategy strategy;
  std::string what = "joint";
  std::string layer;
};

// Writes a trace if one is asked for.
bool write_trace(const torch::jit::Module& lowered, const DrawArguments& arguments) {
  if (arguments.what != "perfetto" && arguments.what != "memory_viz")
    return false;
  if (!arguments.layer.empty())
    throw std::invalid_argument("--layer: a trace shows all layers");
  OutputFile file(arguments.output);
  file.write(arguments.what == "perfetto" ? perfetto(lowered) : memory_viz(lowered));
  file.commit();
  return true;
}

void run_draw(const DrawArguments& arguments) {
  auto strategy = arguments.strategy;
  if (strategy.name.empty() && strategy.budget.empty())
    strategy.name = "none";
  auto options = with_plan_file(options_of(strategy, arguments));
  auto files = files_beside(arguments);
  files.push_back(arguments.path);
  check_output(arguments.output, files);
  options["profile"] = true;  // a timeline needs it
  auto module = load_module(arguments.path, Tensors::kReal);
  if (arguments.train)
    module.train();
  const auto inputs = make_inputs(module, arguments.method, arguments.inputs, Tensors::kReal);
  auto lowered = lower(module, options.dump(), {arguments.method});
  run_step(lowered, arguments.method, inputs);
  try {
    if (!write_trace(lowered, arguments))
      draw(lowered, arguments.output, arguments.what, arguments.layer, arguments.method);
  } catch (const std::invalid_argument&) {
    throw;
  } catch (const Failure&) {
    throw;
  } catch (const std::exception& error) {
    throw Failure(Exit::kCannotWrite, one_line(error));
  }
  if (arguments.json)
    print({{"file", arguments.output}, {"what", arguments.what}, {"options", options}});
  else
    std::printf("%s: written\n", arguments.output.c_str());
}

}  // namespace

void add_draw(CLI::App& program) {
  const auto arguments = std::make_shared<DrawArguments>();
  auto* const app = program.add_subcommand(
      "draw", "Draws forward and backward of a training step, or its memory.");
  add_file(*app, *arguments);
  app->add_option("output", arguments->output,
                  wrapped("the picture to write: .svg, .png (by graphviz) or .dot; traces may have "
                          "any name"))
      ->required()
      ->type_name("FILE");
  add_call(*app, *arguments);
  add_strategy(*app, arguments->strategy);
  add_settings(*app, *arguments);
  app->add_option("--what", arguments->what,
                  wrapped("joint, forward, backward, or timeline: the memory of the step; or a "
                          "trace of the step, for https://ui.perfetto.dev (perfetto) or "
                          "https://pytorch.org/memory_viz (memory_viz)"))
      ->check(CLI::IsMember({"joint", "forward", "backward", "timeline", "perfetto", "memory_viz"}))
      ->capture_default_str()
      ->type_name("PICTURE");
  app->add_option("--layer", arguments->layer,
                  wrapped("the path of a module, such as blocks.3, to show what is inside of it"))
      ->type_name("PATH");
  app->footer(
      "One step runs. Without a strategy, nothing is recomputed in the picture.\n\n"
      "Example:\n"
      "  aten-recompute draw gpt.pt gpt.svg --input 'int64[8,512]' --input 'int64[8,512]' "
      "--budget 0.5");
  app->callback([arguments] { run_draw(*arguments); });
}

}  // namespace aten_recompute::command
