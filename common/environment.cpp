#include "common/environment.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <stdexcept>
#include <system_error>

namespace aten_recompute {
namespace {

constexpr std::array kVariables{
    EnvironmentVariable{"RECOMPUTE", "", false, "options as JSON"},
    EnvironmentVariable{"RECOMPUTE_LOG_LEVEL", "", false, "DEBUG, INFO, WARNING, ERROR or OFF"},
    EnvironmentVariable{"RECOMPUTE_LOGS", "", false, "topics and their levels"},
    EnvironmentVariable{"RECOMPUTE_LOG_FILE", "", false, "the path of a file"},
    EnvironmentVariable{"RECOMPUTE_PROGRESS", "", false, "0"},
    EnvironmentVariable{"RECOMPUTE_SAVE_IR", "", false, "1 or 0"},
    EnvironmentVariable{"RECOMPUTE_PROJECT_ROOT", "PROJECT_ROOT", false, "the path of a folder"},
    EnvironmentVariable{"RECOMPUTE_MODEL_NAME", "MODEL_NAME", false, "a name"},
    EnvironmentVariable{"RECOMPUTE_RUN_ID", "RUN_ID", false, "a name"},
    EnvironmentVariable{"RECOMPUTE_ARENA", "ATEN_RECOMPUTE_ARENA", true, "off"},
    EnvironmentVariable{"RECOMPUTE_ARENA_MIN_BYTES", "ATEN_RECOMPUTE_ARENA_MIN_BYTES", true,
                        "a number of bytes"},
    EnvironmentVariable{"RECOMPUTE_ARENA_POISON", "ATEN_RECOMPUTE_ARENA_POISON", true, "1"},
    EnvironmentVariable{"RECOMPUTE_CHANNELS_LAST", "ATEN_RECOMPUTE_CHANNELS_LAST", true, "always"},
    EnvironmentVariable{"RECOMPUTE_SLICES", "", true, "always"},
    EnvironmentVariable{"RECOMPUTE_FASTER_OPERATORS", "", true, "off"},
    EnvironmentVariable{"RECOMPUTE_SEARCH_STEPS", "", true, "a number of simulated steps"},
    EnvironmentVariable{"RECOMPUTE_LINT", "ATEN_RECOMPUTE_LINT", true, "1"},
    EnvironmentVariable{"RECOMPUTE_DISABLE_PASSES", "ATEN_RECOMPUTE_DISABLE_PASSES", true,
                        "names of passes"},
};

std::optional<std::string> value_of(std::string_view name) {
  if (name.empty())
    return std::nullopt;
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr || *value == '\0' ? std::nullopt : std::optional<std::string>(value);
}

}  // namespace

std::span<const EnvironmentVariable> environment_variables() {
  return kVariables;
}

std::optional<std::string> environment(std::string_view name) {
  const auto* found = std::find_if(kVariables.begin(), kVariables.end(),
                                   [&](const auto& variable) { return variable.name == name; });
  if (found == kVariables.end())
    throw std::logic_error("aten_recompute: no environment variable is called " +
                           std::string(name));
  auto value = value_of(found->name);
  return value ? value : value_of(found->old_name);
}

bool environment_is(std::string_view name, std::string_view value) {
  return environment(name) == value;
}

std::optional<int64_t> environment_number(std::string_view name) {
  const auto text = environment(name).value_or("");
  int64_t number = 0;
  const auto result = std::from_chars(text.data(), text.data() + text.size(), number);
  return result.ec == std::errc() && number > 0 ? std::optional(number) : std::nullopt;
}

std::vector<std::string> outdated_environment_variables() {
  std::vector<std::string> lines;
  for (const auto& variable : kVariables) {
    if (variable.is_outdated && value_of(variable.old_name)) {
      lines.push_back("the environment variable " + std::string(variable.old_name) + " is called " +
                      std::string(variable.name) + " now");
    }
  }
  return lines;
}

}  // namespace aten_recompute
