#include "command/described_options.h"

#include <algorithm>
#include <sstream>

namespace aten_recompute::command {
namespace {

// CLI11 shows choices behind the type: "DEVICE:{cpu,cuda}".
std::vector<std::string> choices_of(const std::string& type) {
  const auto open = type.find(":{");
  const auto close = type.rfind('}');
  std::vector<std::string> choices;
  if (open == type.npos || close == type.npos)
    return choices;
  std::istringstream list(type.substr(open + 2, close - open - 2));
  for (std::string choice; std::getline(list, choice, ',');)
    choices.push_back(choice);
  return choices;
}

DescribedOption described(const CLI::Option& option) {
  DescribedOption result;
  result.is_positional = !option.nonpositional();
  if (result.is_positional) {
    result.names = {option.get_name(/*positional=*/true)};
  } else {
    for (const auto& name : option.get_snames())
      result.names.push_back("-" + name);
    for (const auto& name : option.get_lnames())
      result.names.push_back("--" + name);
  }
  if (option.get_type_size() != 0) {
    const auto type = option.get_type_name();
    result.value = type.substr(0, type.find(':'));
    result.choices = choices_of(type);
    result.default_value = option.get_default_str();
  }
  result.help = option.get_description();
  std::replace(result.help.begin(), result.help.end(), '\n', ' ');
  result.is_required = option.get_required();
  result.is_repeatable = option.get_items_expected_max() > 1;
  return result;
}

}  // namespace

std::vector<DescribedOption> described_options(const CLI::App& app) {
  std::vector<DescribedOption> options;
  for (const auto* option : app.get_options()) {
    // Subcommands inherit what shows the help of all.
    if (app.get_parent() == nullptr || option != app.get_help_all_ptr())
      options.push_back(described(*option));
  }
  std::stable_partition(options.begin(), options.end(),
                        [](const DescribedOption& option) { return option.is_positional; });
  return options;
}

std::vector<const CLI::App*> listed_subcommands(const CLI::App& program) {
  return program.get_subcommands(
      [](const CLI::App* app) { return !app->get_name().empty() && !app->get_group().empty(); });
}

CLI::Validator suggestions(const std::vector<std::string>& values) {
  return {[](std::string&) { return std::string(); }, CLI::detail::generate_set(values)};
}

}  // namespace aten_recompute::command
