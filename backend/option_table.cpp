#include "backend/option_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <regex>
#include <stdexcept>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

namespace aten_recompute {
namespace {

using Json = nlohmann::json;

// ---- Reading one value ----
// Each reader returns nothing where the value is not accepted. Values may come out of a dict of
// strings, so a number may be a string that holds one, and a list a string that holds its JSON.

template <typename Number>
std::optional<Number> parse_number(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) {
    return std::nullopt;
  }
  return number;
}

std::optional<double> read_double(const Json& value) {
  if (value.is_number()) {
    return value.get<double>();
  }
  return value.is_string() ? parse_number<double>(value.get<std::string>()) : std::nullopt;
}

std::optional<int64_t> read_int(const Json& value) {
  if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
    return std::nullopt;
  }
  if (value.is_number_integer()) {
    return value.get<int64_t>();
  }
  if (value.is_number_float()) {
    // A dict of floats turns 2 into 2.0. Past 2^53 a double no longer tells neighbours apart.
    const double number = value.get<double>();
    const bool is_exact = std::trunc(number) == number && std::abs(number) <= 9007199254740992.0;
    return is_exact ? std::optional<int64_t>(static_cast<int64_t>(number)) : std::nullopt;
  }
  return value.is_string() ? parse_number<int64_t>(value.get<std::string>()) : std::nullopt;
}

std::optional<int64_t> read_int_at_least(const Json& value, int64_t least) {
  const std::optional<int64_t> number = read_int(value);
  return number && *number >= least ? number : std::nullopt;
}

std::optional<bool> read_bool(const Json& value) {
  if (value.is_boolean()) {
    return value.get<bool>();
  }
  const std::string text = value.is_string() ? value.get<std::string>() : value.dump();
  if (text == "true" || text == "True" || text == "1") {
    return true;
  }
  if (text == "false" || text == "False" || text == "0") {
    return false;
  }
  return std::nullopt;
}

std::optional<Json> read_list(const Json& value) {
  const Json list = value.is_string()
                        ? Json::parse(value.get<std::string>(), nullptr, /*allow_exceptions=*/false)
                        : value;
  return list.is_array() ? std::optional<Json>(list) : std::nullopt;
}

std::optional<std::vector<std::string>> read_strings(const Json& value) {
  const std::optional<Json> list = read_list(value);
  if (!list || list->empty()) {
    return std::nullopt;
  }
  std::vector<std::string> strings;
  for (const Json& item : *list) {
    if (!item.is_string() || item.get_ref<const std::string&>().empty()) {
      return std::nullopt;
    }
    strings.push_back(item.get<std::string>());
  }
  return strings;
}

// ---- The keys ----

bool store_nothing(const Json& value, Options&) {
  if (!value.is_string()) {
    return value.is_null();
  }
  const std::string text = value.get<std::string>();
  return text.empty() || text == "null";
}

bool store_keywords(const Json& value, Options& options) {
  const auto strings = read_strings(value);
  // "%" alone would name every value without saying so.
  if (!strings || std::count(strings->begin(), strings->end(), "%") > 0) {
    return false;
  }
  options.keywords = *strings;
  return true;
}

bool store_ops(const Json& value, Options& options) {
  constexpr std::string_view kNamespace = "aten::";
  auto strings = read_strings(value);
  if (!strings) {
    return false;
  }
  for (std::string& op : *strings) {
    if (op.starts_with(kNamespace)) {
      op.erase(0, kNamespace.size());
    }
    if (op.empty()) {
      return false;
    }
  }
  options.ops = *std::move(strings);
  return true;
}

bool store_start(const Json& value, Options& options) {
  const auto start = read_int_at_least(value, 0);
  options.layer_start = start.value_or(options.layer_start);
  return start.has_value();
}

bool store_stride(const Json& value, Options& options) {
  const auto stride = read_int_at_least(value, 1);
  options.layer_stride = stride.value_or(options.layer_stride);
  return stride.has_value();
}

bool store_start_and_stride(const Json& value, Options& options) {
  const std::optional<Json> pair = read_list(value);
  return pair && pair->size() == 2 && store_start((*pair)[0], options) &&
         store_stride((*pair)[1], options);
}

bool store_ratio(const Json& value, Options& options) {
  const auto ratio = read_double(value);
  if (!ratio || !(*ratio > 0.0 && *ratio <= 1.0)) {
    return false;
  }
  options.layer_ratio = ratio;
  return true;
}

bool store_count(const Json& value, Options& options) {
  options.segment_count = read_int_at_least(value, 1);
  return options.segment_count.has_value();
}

bool store_pattern(const Json& value, Options& options) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    return false;
  }
  options.layer_pattern = value.get<std::string>();
  try {
    std::regex(options.layer_pattern);
  } catch (const std::regex_error&) {
    return false;
  }
  return true;
}

bool store_fullgraph(const Json& value, Options& options) {
  const auto fullgraph = read_bool(value);
  options.fullgraph = fullgraph.value_or(options.fullgraph);
  return fullgraph.has_value();
}

constexpr KeyRule kKeywords{"keywords", R"(a non-empty list of non-empty strings, e.g. ["%relu"])",
                            store_keywords};
constexpr KeyRule kOps{"ops", R"(a non-empty list of operator names, e.g. ["relu"])", store_ops};
constexpr KeyRule kStart{"start", "an integer >= 0", store_start};
constexpr KeyRule kStride{"stride", "an integer >= 1", store_stride};
constexpr KeyRule kRatio{"ratio", "a number in (0, 1]", store_ratio};
constexpr KeyRule kCount{"count", "an integer >= 1", store_count};
constexpr KeyRule kPattern{"pattern", "a regular expression over module paths", store_pattern};

}  // namespace

const KeyRule fullgraph_key{"fullgraph", "true or false", store_fullgraph};

const std::vector<StrategyRule>& strategies() {
  static const auto* rules = new std::vector<StrategyRule>{
      {StrategyKind::kNone, "none", "keep what the backward needs", {}, {}, {fullgraph_key}, false},
      {StrategyKind::kAll,
       "all",
       "recompute every activation of every layer",
       {{"1", "null", store_nothing}},
       {},
       {kPattern, fullgraph_key},
       false},
      {StrategyKind::kNames,
       "names",
       "recompute values whose name contains a keyword",
       {{"2", kKeywords.accepts, store_keywords}},
       {kKeywords},
       {fullgraph_key},
       true},
      {StrategyKind::kLayers,
       "layers",
       "recompute layers start, start + stride, ..., or the first part of them",
       {{"3", "[start, stride] with start >= 0 and stride >= 1, e.g. [0, 2]",
         store_start_and_stride},
        {"4", kRatio.accepts, store_ratio}},
       {kStart, kStride, kRatio},
       {kPattern, fullgraph_key},
       false},
      {StrategyKind::kOps,
       "ops",
       "recompute the results of these ATen operators",
       {{"5", kOps.accepts, store_ops}},
       {kOps},
       {fullgraph_key},
       true},
      {StrategyKind::kSegments,
       "segments",
       "keep segment boundaries only",
       {},
       {},
       {kCount, fullgraph_key},
       false},
  };
  return *rules;
}

const StrategyRule& rule_of(StrategyKind kind) {
  for (const StrategyRule& rule : strategies()) {
    if (rule.kind == kind) {
      return rule;
    }
  }
  throw std::logic_error("aten_recompute: a strategy is missing from the table of strategies");
}

const KeyRule* find_key(const std::vector<KeyRule>& keys, std::string_view name) {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const KeyRule& key) { return key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

}  // namespace aten_recompute
