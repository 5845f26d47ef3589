// The command aten-recompute: predicts, plans and lowers TorchScript files, with no Python.
#include <aten_recompute/aten_recompute.h>

#include <c10/util/Exception.h>
#include <torch/csrc/jit/runtime/print_handler.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>

#include "command/failure.h"
#include "command/subcommands.h"

namespace aten_recompute::command {
namespace {

constexpr const char* kExitStatuses =
    "Exit status:\n"
    "  0  success\n"
    "  1  check: the peak is above the limit\n"
    "  2  an argument is wrong: syntax, options, methods, number or types of inputs\n"
    "  3  a file cannot be read, or is not what it should be\n"
    "  4  a result cannot be written\n"
    "  5  no plan keeps the budget\n"
    "  6  the step cannot run with these inputs, or is not known without running it\n"
    "An error is one line on stderr. Files are written completely or not at all.\n\n"
    "Environment: NO_COLOR switches colors off, RECOMPUTE_LOGS chooses what is logged to stderr.";

int fail(Exit status, std::string message) {
  const std::string prefix = "aten_recompute: ";
  if (message.rfind(prefix, 0) == 0)
    message.erase(0, prefix.size());
  message.erase(std::min(message.find('\n'), message.size()));
  std::fflush(stdout);
  std::fprintf(stderr, "aten-recompute: %s\n", message.c_str());
  return static_cast<int>(status);
}

Exit status_of(const std::exception& error) {
  if (const auto typed = typed_error(error)) {
    if (dynamic_cast<const BudgetUnreachableError*>(typed.get()) != nullptr)
      return Exit::kBudgetUnreachable;
    if (dynamic_cast<const InvalidOptionError*>(typed.get()) != nullptr ||
        dynamic_cast<const NoSuchMethodError*>(typed.get()) != nullptr ||
        dynamic_cast<const PlanMismatchError*>(typed.get()) != nullptr)
      return Exit::kBadArguments;
  }
  return dynamic_cast<const std::invalid_argument*>(&error) != nullptr ? Exit::kBadArguments
                                                                       : Exit::kStepFailed;
}

// Drops PyTorch's warnings, so that stderr has what this program says.
struct Silent : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

int run(int argc, char** argv) {
  Silent silent;
  c10::WarningUtils::set_warning_handler(&silent);
  // What a method prints does not belong to the results on stdout.
  torch::jit::setPrintHandler([](const std::string& text) { std::fputs(text.c_str(), stderr); });
  if (std::getenv("RECOMPUTE_LOGS") == nullptr && std::getenv("RECOMPUTE_LOG_LEVEL") == nullptr)
    set_logs("all=error");

  CLI::App app("Trains TorchScript modules in less memory: predicts and plans what a step takes.",
               "aten-recompute");
  app.set_version_flag("--version", version());
  app.set_help_all_flag("--help-all", "Print the help of all subcommands");
  app.require_subcommand(1);
  app.footer(std::string(kExitStatuses));
  add_estimate(app);
  add_plan(app);
  add_lower(app);
  add_inspect(app);
  add_check(app);
  add_draw(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0)
      return fail(Exit::kBadArguments,
                  std::string(error.what()) + "; --help says what is accepted");
    app.exit(error);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return fail(Exit::kCannotWrite, "the result cannot be written to stdout");
  return 0;
}

}  // namespace
}  // namespace aten_recompute::command

int main(int argc, char** argv) {
  using namespace aten_recompute;
  try {
    return command::run(argc, argv);
  } catch (const command::Failure& failure) {
    return command::fail(failure.status(), failure.what());
  } catch (const std::exception& error) {
    return command::fail(command::status_of(error), one_line(error));
  }
}
