// The options of a program as plain data, for what describes them elsewhere than --help does.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace aten_recompute::command {

struct DescribedOption {
  std::vector<std::string> names;    // {"-b", "--budget"}, or {"file"}
  std::string value;                 // "BUDGET"; "" for a flag
  std::vector<std::string> choices;  // what the value may be, where that is a short list
  std::string help;                  // in one line
  std::string default_value;
  bool is_positional = false;
  bool is_required = false;
  bool is_repeatable = false;
};

// Returns the options in the order of --help: positional ones first.
std::vector<DescribedOption> described_options(const CLI::App& app);

// Returns the subcommands that --help lists.
std::vector<const CLI::App*> listed_subcommands(const CLI::App& program);

// A list of values that help and completion show, and that is not checked: the library does that.
CLI::Validator suggestions(const std::vector<std::string>& values);

}  // namespace aten_recompute::command
