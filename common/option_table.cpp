#include "common/option_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <optional>
#include <regex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/lower_case.h"

namespace aten_recompute {
namespace {

using Json = nlohmann::json;

// Each reader returns std::nullopt if the value is not accepted. A spec may be a dict of strings,
// so a number may be given as a string, and a list as a string of JSON.

template <typename Number>
std::optional<Number> parse_number(const std::string& text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size())
    return std::nullopt;
  return number;
}

std::optional<double> read_double(const Json& value) {
  if (value.is_number())
    return value.get<double>();
  return value.is_string() ? parse_number<double>(value.get<std::string>()) : std::nullopt;
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

// ---- The keys ----

bool store_nothing(const Json& value, Options&) {
  if (!value.is_string())
    return value.is_null();
  const std::string text = value.get<std::string>();
  return text.empty() || text == "null";
}

bool store_keywords(const Json& value, Options& options) {
  const auto strings = read_strings(value);
  // "%" alone would silently match every value.
  if (!strings || std::count(strings->begin(), strings->end(), "%") > 0)
    return false;
  options.keywords = *strings;
  return true;
}

// Returns operator names without "aten::".
std::optional<std::vector<std::string>> read_ops(const Json& value) {
  constexpr std::string_view kNamespace = "aten::";
  auto strings = read_strings(value);
  if (!strings)
    return std::nullopt;
  for (std::string& op : *strings) {
    if (op.starts_with(kNamespace))
      op.erase(0, kNamespace.size());
    if (op.empty())
      return std::nullopt;
  }
  return strings;
}

bool store_ops(const Json& value, Options& options) {
  auto ops = read_ops(value);
  if (!ops)
    return false;
  options.ops = *std::move(ops);
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
  if (!ratio || !(*ratio > 0.0 && *ratio <= 1.0))
    return false;
  options.layer_ratio = ratio;
  return true;
}

bool store_count(const Json& value, Options& options) {
  options.segment_count = read_int_at_least(value, 1);
  return options.segment_count.has_value();
}

bool store_pattern(const Json& value, Options& options) {
  if (!value.is_string() || value.get_ref<const std::string&>().empty())
    return false;
  options.layer_pattern = value.get<std::string>();
  try {
    std::regex(options.layer_pattern);
  } catch (const std::regex_error&) {
    return false;
  }
  return true;
}

template <bool Options::*kFlag>
bool store_flag(const Json& value, Options& options) {
  const auto flag = read_bool(value);
  options.*kFlag = flag.value_or(options.*kFlag);
  return flag.has_value();
}

// Accepts the path of a plan file, or its content, which saved lowered modules carry.
bool store_plan(const Json& value, Options& options) {
  if (value.is_object()) {
    options.plan = value.dump();
    return true;
  }
  if (!value.is_string())
    return false;
  std::ifstream file(value.get<std::string>());
  std::ostringstream text;
  text << file.rdbuf();
  const auto json = Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (!file || !json.is_object())
    return false;
  options.plan = json.dump();
  return true;
}

// Returns the number at the beginning of the text, and the word after it: "1.5 GB" is 1.5 and "gb".
std::optional<std::pair<double, std::string>> read_number_and_unit(const std::string& text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc())
    return std::nullopt;
  std::string unit(end, text.data() + text.size());
  unit.erase(0, unit.find_first_not_of(' '));
  return std::pair(number, lower_case(unit));
}

// Reads a number of bytes with an optional unit, such as "600MiB", "1.5 GB" or "1024". "600M" is
// refused, because it is 1000^2 bytes for some programs and 1024^2 for others.
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

bool store_fraction(double fraction, Options& options) {
  if (fraction > 0.0 && fraction <= 1.0)
    options.memory_fraction = fraction;
  return options.memory_fraction.has_value();
}

// Numbers up to 1 are fractions, greater ones are bytes.
bool store_memory_budget(const Json& value, Options& options) {
  options.memory_fraction.reset();
  options.memory_bytes.reset();
  if (const auto number = read_double(value)) {
    if (store_fraction(*number, options))
      return true;
    options.memory_bytes = read_int_at_least(value, 2);
    return options.memory_bytes.has_value();
  }
  const auto size =
      value.is_string() ? read_number_and_unit(value.get<std::string>()) : std::nullopt;
  if (!size)
    return false;
  if (size->second == "%")
    return store_fraction(size->first / 100.0, options);
  options.memory_bytes = read_bytes(size->first, size->second);
  return options.memory_bytes.has_value();
}

bool store_time_budget(const Json& value, Options& options) {
  const auto number = read_double(value);
  if (!number || !(*number >= 1.0) || !std::isfinite(*number))
    return false;
  options.time_budget = number;
  return true;
}

bool store_leanest_time(const Json& value, Options& options) {
  const auto number = read_double(value);
  if (!number || !(*number >= 1.0) || !std::isfinite(*number))
    return false;
  options.leanest_time = *number;
  return true;
}

bool store_fraction_of(const Json& value, Options& options) {
  if (value != "first" && value != "largest")
    return false;
  options.fraction_of = value == "first" ? FractionOf::kFirst : FractionOf::kLargest;
  return true;
}

bool store_cost_model(const Json& value, Options& options) {
  if (value != "measured" && value != "flops")
    return false;
  options.cost_model = value == "flops" ? CostModel::kFlops : CostModel::kMeasured;
  return true;
}

// ---- min_cut ----

template <bool MinCutOptions::*kFlag>
bool store_flag(const Json& value, Options& options) {
  const auto flag = read_bool(value);
  options.min_cut.*kFlag = flag.value_or(options.min_cut.*kFlag);
  return flag.has_value();
}

template <int64_t MinCutOptions::*kLength>
bool store_length(const Json& value, Options& options) {
  const auto length = read_int_at_least(value, 0);
  options.min_cut.*kLength = length.value_or(options.min_cut.*kLength);
  return length.has_value();
}

template <double MinCutOptions::*kFactor>
bool store_factor(const Json& value, Options& options) {
  const auto factor = read_double(value);
  if (!factor || !(*factor >= 1.0 && *factor <= 1000.0))
    return false;
  options.min_cut.*kFactor = *factor;
  return true;
}

template <std::optional<std::vector<std::string>> MinCutOptions::*kNames>
bool store_operators(const Json& value, Options& options) {
  const auto list = read_list(value);
  auto names = list && list->empty() ? std::vector<std::string>() : read_ops(value);
  if (!names)
    return false;
  options.min_cut.*kNames = std::move(names);
  return true;
}

bool store_unreachable(const Json& value, Options& options) {
  if (!value.is_string() || (value != "raise" && value != "leanest"))
    return false;
  options.leanest_if_unreachable = value == "leanest";
  return true;
}

bool store_arena(const Json& value, Options& options) {
  if (!value.is_string() || (value != "keep" && value != "release" && value != "off"))
    return false;
  options.arena = value == "keep"      ? ArenaMode::kKeep
                  : value == "release" ? ArenaMode::kRelease
                                       : ArenaMode::kOff;
  return true;
}

constexpr std::string_view kFlagAccepts = "true or false";
constexpr std::string_view kLengthAccepts = "an integer >= 0";
constexpr std::string_view kFactorAccepts = "a number in [1, 1000]";
constexpr std::string_view kOperatorsAccept = R"(a list of operator names, e.g. ["relu"])";

std::vector<KeyRule> min_cut_keys() {
  using M = MinCutOptions;
  return {
      {"aggressive_recomputation", kFlagAccepts, store_flag<&M::aggressive_recomputation>},
      {"ban_if_used_far_apart", kFlagAccepts, store_flag<&M::ban_if_used_far_apart>},
      {"ban_if_long_fusible_chains", kFlagAccepts, store_flag<&M::ban_if_long_fusible_chains>},
      {"max_fusible_depth", kLengthAccepts, store_length<&M::max_fusible_depth>},
      {"ban_if_materialized_backward", kFlagAccepts, store_flag<&M::ban_if_materialized_backward>},
      {"ban_if_not_in_allowlist", kFlagAccepts, store_flag<&M::ban_if_not_in_allowlist>},
      {"recomputable_ops", kOperatorsAccept, store_operators<&M::recomputable_ops>},
      {"compute_intensive_ops", kOperatorsAccept, store_operators<&M::compute_intensive_ops>},
      {"ban_if_reduction", kFlagAccepts, store_flag<&M::ban_if_reduction>},
      {"reduction_ratio", kFactorAccepts, store_factor<&M::reduction_ratio>},
      {"max_dist_from_bw", kLengthAccepts, store_length<&M::max_dist_from_bw>},
      {"recompute_views", kFlagAccepts, store_flag<&M::recompute_views>},
      {"recompute_random", kFlagAccepts, store_flag<&M::recompute_random>},
      {"treat_parameters_as_free_to_save", kFlagAccepts,
       store_flag<&M::treat_parameters_as_free_to_save>},
      {"distance_weight", kFactorAccepts, store_factor<&M::distance_weight>},
      {"not_materialized_weight", kFactorAccepts, store_factor<&M::not_materialized_weight>},
  };
}

constexpr KeyRule kMemoryBudget{
    "memory_budget",
    R"(a fraction of the unplanned peak in (0, 1], such as 0.4 or "40%", or bytes such as "600MiB")"
    " (units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)",
    store_memory_budget};
constexpr KeyRule kTimeBudget{"time_budget", "a multiple of the unplanned step time, >= 1",
                              store_time_budget};
constexpr KeyRule kUnreachable{"unreachable", R"("raise" or "leanest")", store_unreachable};
constexpr KeyRule kLeanestTime{"leanest_time", "a multiple of the unplanned step time, >= 1",
                               store_leanest_time};
constexpr KeyRule kFractionOf{"of", R"("first" or "largest")", store_fraction_of};
constexpr KeyRule kCostModel{"cost_model", R"("measured" or "flops")", store_cost_model};
constexpr KeyRule kKeywords{"keywords", R"(a non-empty list of non-empty strings, e.g. ["%relu"])",
                            store_keywords};
constexpr KeyRule kOps{"ops", R"(a non-empty list of operator names, e.g. ["relu"])", store_ops};
constexpr KeyRule kStart{"start", "an integer >= 0", store_start};
constexpr KeyRule kStride{"stride", "an integer >= 1", store_stride};
constexpr KeyRule kRatio{"ratio", "a number in (0, 1]", store_ratio};
constexpr KeyRule kCount{"count", "an integer >= 1", store_count};
constexpr KeyRule kPattern{"pattern", "a regular expression over module paths", store_pattern};

}  // namespace

const std::vector<KeyRule>& common_keys() {
  static const auto* keys = new std::vector<KeyRule>{
      {"fullgraph", "true or false", store_flag<&Options::fullgraph>},
      {"profile", "true or false", store_flag<&Options::profile>},
      {"accumulate", "true or false", store_flag<&Options::accumulate>},
      {"release_outputs", "true or false", store_flag<&Options::release_outputs>},
      {"exact", "true or false", store_flag<&Options::exact>},
      {"fuse", "true or false", store_flag<&Options::fuse>},
      {"save_ir", "true or false", store_flag<&Options::save_ir>},
      {"arena", R"("keep", "release" or "off")", store_arena}};
  return *keys;
}

const std::vector<StrategyRule>& strategies() {
  static const auto* rules = [] {
    auto* table = new std::vector<StrategyRule>{
        {StrategyKind::kNone, "none", "keep what the backward needs", {}, {}, {}, false},
        {StrategyKind::kAll,
         "all",
         "recompute every activation of every layer",
         {{"1", "null", store_nothing}},
         {},
         {kPattern},
         false},
        {StrategyKind::kNames,
         "names",
         "recompute values whose name contains a keyword",
         {{"2", kKeywords.accepts, store_keywords}},
         {kKeywords},
         {},
         true},
        {StrategyKind::kLayers,
         "layers",
         "recompute layers start, start + stride, ..., or the first part of them",
         {{"3", "[start, stride] with start >= 0 and stride >= 1, e.g. [0, 2]",
           store_start_and_stride},
          {"4", kRatio.accepts, store_ratio}},
         {kStart, kStride, kRatio},
         {kPattern},
         false},
        {StrategyKind::kOps,
         "ops",
         "recompute the results of these ATen operators",
         {{"5", kOps.accepts, store_ops}},
         {kOps},
         {},
         true},
        {StrategyKind::kSegments,
         "segments",
         "keep segment boundaries only",
         {},
         {},
         {kCount},
         false},
        {StrategyKind::kMinCut,
         "min_cut",
         "keep a minimum cut between the forward and what the backward needs",
         {},
         min_cut_keys(),
         {},
         false},
        {StrategyKind::kPlan,
         "plan",
         "follow a plan that was exported",
         {{"plan", "the path of a file that save_plan() wrote, or its content", store_plan}},
         {},
         {kCostModel},
         true},
        {StrategyKind::kBudget,
         "budget",
         "the fastest plan whose peak fits",
         {},
         {kMemoryBudget, kTimeBudget, kCostModel},
         {kFractionOf, kUnreachable, kLeanestTime},
         false},
    };
    for (auto& rule : *table)
      rule.extras.insert(rule.extras.end(), common_keys().begin(), common_keys().end());
    return table;
  }();
  return *rules;
}

const StrategyRule& rule_of(StrategyKind kind) {
  for (const StrategyRule& rule : strategies()) {
    if (rule.kind == kind)
      return rule;
  }
  throw std::logic_error("aten_recompute: a strategy is missing from the table of strategies");
}

const KeyRule* find_key(const std::vector<KeyRule>& keys, std::string_view name) {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const KeyRule& key) { return key.name == name; });
  return found == keys.end() ? nullptr : &*found;
}

}  // namespace aten_recompute
