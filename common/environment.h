// The environment variables that this library reads. No other file calls getenv() for them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace aten_recompute {

// One variable. docs/debugging.md says what each is for.
struct EnvironmentVariable {
  std::string_view name;
  std::string_view old_name;  // still read where `name` is not set; empty: there is none
  bool is_outdated;           // whether the use of the old name is worth a warning
  std::string_view accepts;
};

std::span<const EnvironmentVariable> environment_variables();

// Returns the value of the variable with this name; nullopt where it is not set, or empty. Throws
// std::logic_error for a name that is not in the table.
std::optional<std::string> environment(std::string_view name);

// Returns whether the variable is set to this value.
bool environment_is(std::string_view name, std::string_view value);

// Returns the variable's value if it is a positive number; nullopt otherwise.
std::optional<int64_t> environment_number(std::string_view name);

// Returns one line for each outdated name that is set.
std::vector<std::string> outdated_environment_variables();

}  // namespace aten_recompute
