#include "common/option_values.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "common/json_text.h"
#include "common/lower_case.h"

namespace aten_recompute {
namespace {

using Json = nlohmann::json;

template <typename Number>
std::optional<Number> parse_number(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return number;
}

std::optional<int64_t> read_int(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max())
    return std::nullopt;
  if (value.is_number_integer())
    return value.get<int64_t>();
  if (value.is_number_float()) {
    // A dict of floats turns 2 into 2.0. Above 2^53, not every integer is a double.
    const double number = value.get<double>();
    const bool is_exact = std::trunc(number) == number && std::abs(number) <= 9007199254740992.0;
    return is_exact ? std::optional<int64_t>(static_cast<int64_t>(number)) : std::nullopt;
  }
  return value.is_string() ? parse_number<int64_t>(value.get<std::string>()) : std::nullopt;
}

}  // namespace

std::optional<double> read_double(const Json& value) {
  if (value.is_number())
    return value.get<double>();
  return value.is_string() ? parse_number<double>(value.get<std::string>()) : std::nullopt;
}

std::optional<int64_t> read_int_at_least(const Json& value, int64_t least) {
  const std::optional<int64_t> number = read_int(value);
  return number && *number >= least ? number : std::nullopt;
}

std::optional<bool> read_bool(const Json& value) {
  if (value.is_boolean())
    return value.get<bool>();
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text == "true" || text == "True" || text == "1")
    return true;
  if (text == "false" || text == "False" || text == "0")
    return false;
  return std::nullopt;
}

std::optional<Json> read_list(const Json& value) {
  if (value.is_string() && !json_limit_exceeded(value.get_ref<const std::string&>()).empty())
    return std::nullopt;
  const Json list = value.is_string()
                        ? Json::parse(value.get<std::string>(), nullptr, /*allow_exceptions=*/false)
                        : value;
  return list.is_array() ? std::optional<Json>(list) : std::nullopt;
}

std::optional<std::vector<std::string>> read_strings(const Json& value) {
  const std::optional<Json> list = read_list(value);
  if (!list || list->empty())
    return std::nullopt;
  std::vector<std::string> strings;
  for (const Json& item : *list) {
    if (!item.is_string() || item.get_ref<const std::string&>().empty())
      return std::nullopt;
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

std::optional<std::pair<double, std::string>> read_number_and_unit(const std::string& text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc())
    return std::nullopt;
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' '));
  return std::pair(number, lower_case(unit));
}

std::optional<int64_t> read_bytes(double number, const std::string& unit) {
  static const std::vector<std::pair<std::string, double>> units = {
      {"", 1.0},
      {"b", 1.0},
      {"kb", 1e3},
      {"mb", 1e6},
      {"gb", 1e9},
      {"tb", 1e12},
      {"kib", 1024.0},
      {"mib", 1024.0 * 1024.0},
      {"gib", 1024.0 * 1024.0 * 1024.0},
      {"tib", 1024.0 * 1024.0 * 1024.0 * 1024.0}};
  for (const auto& [name, factor] : units) {
    const double bytes = number * factor;
    // One byte is refused, because it would be read back as the fraction 1.
    if (unit == name && bytes >= 2.0 && bytes < 9e18)
      return static_cast<int64_t>(bytes);
  }
  return std::nullopt;
}

}  // namespace aten_recompute
