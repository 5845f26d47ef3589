// The command aten-recompute: predicts, plans and lowers TorchScript files, with no Python.
#include <aten_recompute/aten_recompute.h>

#include <c10/util/Exception.h>
#include <torch/csrc/jit/runtime/print_handler.h>
#include <CLI/CLI.hpp>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <vector>

#include "command/completion.h"
#include "command/described_options.h"
#include "command/failure.h"
#include "command/manual.h"
#include "command/subcommands.h"
#include "common/did_you_mean.h"

namespace aten_recompute::command {
namespace {

constexpr const char* kFooter =
    "Exit status:\n"
    "  0  success\n"
    "  1  check: the peak is above the limit\n"
    "  2  an argument is wrong: syntax, options, methods, number or types of inputs\n"
    "  3  a file cannot be read, or is not what it should be\n"
    "  4  a result cannot be written\n"
    "  5  no plan keeps the budget\n"
    "  6  the step cannot run with these inputs, or is not known without running it\n"
    "An error is one line on stderr. Files are written completely or not at all.\n\n"
    "Environment:\n"
    "  NO_COLOR            switches colors off, if it is not empty\n"
    "  RECOMPUTE_LOGS      chooses what is logged to stderr; by default only errors are\n"
    "  RECOMPUTE_PROGRESS  0 switches bars of progress off, which only a terminal shows";

int exit_with(Exit status, const std::string& message) {
  std::fflush(stdout);
  std::fprintf(stderr, "aten-recompute: %s\n", message.c_str());
  return static_cast<int>(status);
}

// Drops PyTorch's warnings, so that stderr has what this program says.
struct Silent : c10::WarningHandler {
  void process(const c10::Warning& /*warning*/) override {}
};

// Adds the options that print a text about the program and end it.
void add_texts(CLI::App& app) {
  app.set_version_flag("--version", version());
  app.set_help_all_flag("--help-all", "Print the help of all subcommands");
  auto* const shell = app.add_option_function<std::string>(
      "--completion",
      [&app](const std::string& name) {
        std::fputs((name == "bash" ? bash_completion(app) : zsh_completion(app)).c_str(), stdout);
        throw CLI::Success();
      },
      "Print a script that lets the shell complete arguments of this program");
  shell->check(CLI::IsMember({"bash", "zsh"}))->type_name("SHELL")->trigger_on_parse();
  auto* const page = app.add_flag_callback(
      "--man",
      [&app] {
        std::fputs(manual(app).c_str(), stdout);
        throw CLI::Success();
      },
      "Print the manual page, for man -l -");
  page->trigger_on_parse();
}

// Returns what is wrong with the command line.
std::string what_is_wrong(const CLI::App& app, const CLI::ParseError& error) {
  if (!app.get_subcommands().empty())
    return error.what();
  std::string names;
  std::vector<std::string> known;
  const auto words = app.remaining();
  for (const auto* subcommand : listed_subcommands(app)) {
    known.push_back(subcommand->get_name());
    names += (names.empty() ? "" : ", ") + known.back();
  }
  if (words.empty())
    return std::string(error.what()) + ": " + names;
  const bool is_option = words.front().rfind('-', 0) == 0;
  const auto meant = did_you_mean(words.front(), known);
  return words.front() + ": no such " + (is_option ? "option" : "subcommand") + meant +
         (is_option ? "; a subcommand comes first: " : "; there are ") + names;
}

int run_command(int argc, char** argv) {
  Silent silent;
  c10::WarningUtils::set_warning_handler(&silent);
  // What a method prints does not belong to the results on stdout.
  torch::jit::setPrintHandler([](const std::string& text) { std::fputs(text.c_str(), stderr); });
  if (std::getenv("RECOMPUTE_LOGS") == nullptr && std::getenv("RECOMPUTE_LOG_LEVEL") == nullptr)
    set_logs("all=error");

  CLI::App app("Predicts, plans and measures the memory of training steps of TorchScript modules.",
               "aten-recompute");
  add_texts(app);
  app.require_subcommand(1);
  app.footer(std::string(kFooter));
  add_estimate(app);
  add_plan(app);
  add_lower(app);
  add_inspect(app);
  add_profile(app);
  add_check(app);
  add_bench(app);
  add_diff(app);
  add_draw(app);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0)
      return exit_with(Exit::kBadArguments,
                       what_is_wrong(app, error) + "; --help says what is accepted");
    app.exit(error);
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    return exit_with(Exit::kCannotWrite, "the result cannot be written to stdout");
  return 0;
}

}  // namespace
}  // namespace aten_recompute::command

int main(int argc, char** argv) {
  using namespace aten_recompute;
  try {
    return command::run_command(argc, argv);
  } catch (const std::exception& error) {
    return command::exit_with(command::status_of(error), command::message_of(error));
  }
}
