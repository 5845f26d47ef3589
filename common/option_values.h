// Reads the values of a spec.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace aten_recompute {

// Each function returns std::nullopt if the value is not accepted. A spec may be a dict of strings,
// so a number may be given as a string, and a list as a string of JSON.

std::optional<double> read_double(const nlohmann::json& value);
std::optional<int64_t> read_int_at_least(const nlohmann::json& value, int64_t least);
std::optional<bool> read_bool(const nlohmann::json& value);
std::optional<nlohmann::json> read_list(const nlohmann::json& value);
// Reads a list of strings. Neither the list nor a string may be empty.
std::optional<std::vector<std::string>> read_strings(const nlohmann::json& value);

// Returns the number at the beginning of the text, and the word after it: "1.5 GB" is 1.5 and "gb".
std::optional<std::pair<double, std::string>> read_number_and_unit(const std::string& text);

// Returns a number of bytes that is given with a unit, such as 600 and "mib"; "" stands for bytes.
// "m" is refused, because it is 1000^2 bytes for some programs and 1024^2 for others.
std::optional<int64_t> read_bytes(double number, const std::string& unit);

}  // namespace aten_recompute
