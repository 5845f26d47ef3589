// What several subcommands take.
#pragma once

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace aten_recompute::command {

// The method of a file, and how it is called.
struct Arguments {
  std::string path;
  std::string method = "forward";
  std::vector<std::string> inputs;
  std::vector<std::string> settings;  // "key=value", options of strategies
  bool json = false;
  bool train = false;
};

// Returns the text in lines of a width that help has room for.
std::string wrapped(const std::string& text);
// Adds an option that may be repeated, each time with one value.
CLI::Option* add_repeatable(CLI::App& app, const std::string& name,
                            std::vector<std::string>& values, const std::string& help);

// Adds the file and --json.
void add_file(CLI::App& app, Arguments& arguments);
// Adds --input, --method and --train. Inputs are required unless `optional`.
void add_call(CLI::App& app, Arguments& arguments, bool optional = false);
// Adds --budget.
void add_budgets(CLI::App& app, std::vector<std::string>& budgets);
// Adds --device, of a step that is not run.
void add_device(CLI::App& app, std::string& device);
// Adds --set.
void add_settings(CLI::App& app, Arguments& arguments);

// Returns the options that --set gives: {"accumulate": true}. A value that is no JSON is a string.
// Throws Failure(kBadArguments) for what is no "key=value", or a key that was given twice.
nlohmann::json options_of(const Arguments& arguments);

// Returns the same for a subcommand that has budgets in place of a strategy. Throws
// Failure(kBadArguments) for options that say what is recomputed, or that `refused` names.
nlohmann::json options_beside_budgets(const Arguments& arguments,
                                      const std::vector<std::string>& refused = {});

// Takes the options of lower() apart from its strategy where that is `plan`, which only the plan
// file stands for. Throws Failure(kBadArguments) if there is none, or Failure(kBadFile).
nlohmann::json with_plan_file(nlohmann::json options);

// Returns the files that may be read beside the module: inputs, and the plan of --set plan=FILE.
// Some of them are no files.
std::vector<std::string> files_beside(const Arguments& arguments);

// Writes the object to stdout.
void print(const nlohmann::json& object);

}  // namespace aten_recompute::command
