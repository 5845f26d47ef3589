#include "common/option_table.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "common/json_text.h"
#include "common/layer_pattern.h"
#include "common/option_values.h"

namespace aten_recompute {
namespace {

using Json = nlohmann::json;

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
    while (op.starts_with(kNamespace))  // what is shown is read again
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
  return compile_layer_pattern(options.layer_pattern).has_value();
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
  const std::filesystem::path path = value.get<std::string>();
  // A device or a pipe may never end.
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error) ||
      std::filesystem::file_size(path, error) > kLongestJson || error)
    return false;
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file || !json_limit_exceeded(text.str()).empty())
    return false;
  const auto json = Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return false;
  options.plan = json.dump();
  return true;
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

bool store_on_oom(const Json& value, Options& options) {
  if (!value.is_string() || (value != "raise" && value != "retry_leaner"))
    return false;
  options.retries_leaner = value == "retry_leaner";
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

// ---- The way back ----

Json if_different(const auto& value, const auto& standard) {
  return value == standard ? Json() : Json(value);
}

template <auto kMember>
Json show_member(const Options& options) {
  return if_different(options.*kMember, Options().*kMember);
}

template <auto kMember>
Json show_optional(const Options& options) {
  return options.*kMember ? Json(*(options.*kMember)) : Json();
}

template <auto kMember>
Json show_min_cut(const Options& options) {
  return if_different(options.min_cut.*kMember, MinCutOptions().*kMember);
}

template <auto kMember>
Json show_operators(const Options& options) {
  return options.min_cut.*kMember ? Json(*(options.min_cut.*kMember)) : Json();
}

// A ratio takes the place of start and stride.
template <auto kMember>
Json show_layers(const Options& options) {
  return options.layer_ratio ? Json() : Json(options.*kMember);
}

Json show_memory_budget(const Options& options) {
  return options.memory_bytes ? Json(*options.memory_bytes)
                              : show_optional<&Options::memory_fraction>(options);
}

Json show_fraction_of(const Options& options) {
  return options.fraction_of == FractionOf::kLargest ? Json("largest") : Json();
}

Json show_unreachable(const Options& options) {
  return options.leanest_if_unreachable ? Json("leanest") : Json();
}

Json show_on_oom(const Options& options) {
  return options.retries_leaner ? Json("retry_leaner") : Json();
}

Json show_cost_model(const Options& options) {
  return options.cost_model == CostModel::kFlops ? Json("flops") : Json();
}

Json show_arena(const Options& options) {
  if (options.arena == ArenaMode::kKeep)
    return {};
  return options.arena == ArenaMode::kRelease ? "release" : "off";
}

Json show_plan(const Options& options) {
  return Json::parse(options.plan);
}

// ---- The keys ----

constexpr std::string_view kFlagAccepts = "true or false";
constexpr std::string_view kLengthAccepts = "an integer >= 0";
constexpr std::string_view kFactorAccepts = "a number in [1, 1000]";
constexpr std::string_view kOperatorsAccept = R"(a list of operator names, e.g. ["relu"])";

std::vector<KeyRule> min_cut_keys() {
  using M = MinCutOptions;
  return {
      {"aggressive_recomputation", kFlagAccepts, store_flag<&M::aggressive_recomputation>,
       show_min_cut<&M::aggressive_recomputation>},
      {"ban_if_used_far_apart", kFlagAccepts, store_flag<&M::ban_if_used_far_apart>,
       show_min_cut<&M::ban_if_used_far_apart>},
      {"ban_if_long_fusible_chains", kFlagAccepts, store_flag<&M::ban_if_long_fusible_chains>,
       show_min_cut<&M::ban_if_long_fusible_chains>},
      {"max_fusible_depth", kLengthAccepts, store_length<&M::max_fusible_depth>,
       show_min_cut<&M::max_fusible_depth>},
      {"ban_if_materialized_backward", kFlagAccepts, store_flag<&M::ban_if_materialized_backward>,
       show_min_cut<&M::ban_if_materialized_backward>},
      {"ban_if_not_in_allowlist", kFlagAccepts, store_flag<&M::ban_if_not_in_allowlist>,
       show_min_cut<&M::ban_if_not_in_allowlist>},
      {"recomputable_ops", kOperatorsAccept, store_operators<&M::recomputable_ops>,
       show_operators<&M::recomputable_ops>},
      {"compute_intensive_ops", kOperatorsAccept, store_operators<&M::compute_intensive_ops>,
       show_operators<&M::compute_intensive_ops>},
      {"ban_if_reduction", kFlagAccepts, store_flag<&M::ban_if_reduction>,
       show_min_cut<&M::ban_if_reduction>},
      {"reduction_ratio", kFactorAccepts, store_factor<&M::reduction_ratio>,
       show_min_cut<&M::reduction_ratio>},
      {"max_dist_from_bw", kLengthAccepts, store_length<&M::max_dist_from_bw>,
       show_min_cut<&M::max_dist_from_bw>},
      {"recompute_views", kFlagAccepts, store_flag<&M::recompute_views>,
       show_min_cut<&M::recompute_views>},
      {"recompute_random", kFlagAccepts, store_flag<&M::recompute_random>,
       show_min_cut<&M::recompute_random>},
      {"treat_parameters_as_free_to_save", kFlagAccepts,
       store_flag<&M::treat_parameters_as_free_to_save>,
       show_min_cut<&M::treat_parameters_as_free_to_save>},
      {"distance_weight", kFactorAccepts, store_factor<&M::distance_weight>,
       show_min_cut<&M::distance_weight>},
      {"not_materialized_weight", kFactorAccepts, store_factor<&M::not_materialized_weight>,
       show_min_cut<&M::not_materialized_weight>},
  };
}

constexpr KeyRule kMemoryBudget{
    "memory_budget",
    R"(a fraction of the unplanned peak in (0, 1], such as 0.4 or "40%", or bytes such as "600MiB")"
    " (units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB)",
    store_memory_budget, show_memory_budget};
constexpr KeyRule kTimeBudget{"time_budget", "a multiple of the unplanned step time, >= 1",
                              store_time_budget, show_optional<&Options::time_budget>};
constexpr KeyRule kUnreachable{"unreachable", R"("raise" or "leanest")", store_unreachable,
                               show_unreachable};
constexpr KeyRule kOnOom{"on_oom", R"("raise" or "retry_leaner")", store_on_oom, show_on_oom};
constexpr KeyRule kLeanestTime{"leanest_time", "a multiple of the unplanned step time, >= 1",
                               store_leanest_time, show_member<&Options::leanest_time>};
constexpr KeyRule kFractionOf{"of", R"("first" or "largest")", store_fraction_of, show_fraction_of};
constexpr KeyRule kCostModel{"cost_model", R"("measured" or "flops")", store_cost_model,
                             show_cost_model};
constexpr KeyRule kKeywords{"keywords", R"(a non-empty list of non-empty strings, e.g. ["%relu"])",
                            store_keywords, show_member<&Options::keywords>};
constexpr KeyRule kOps{"ops", R"(a non-empty list of operator names, e.g. ["relu"])", store_ops,
                       show_member<&Options::ops>};
constexpr KeyRule kStart{"start", "an integer >= 0", store_start,
                         show_layers<&Options::layer_start>};
constexpr KeyRule kStride{"stride", "an integer >= 1", store_stride,
                          show_layers<&Options::layer_stride>};
constexpr KeyRule kRatio{"ratio", "a number in (0, 1]", store_ratio,
                         show_optional<&Options::layer_ratio>};
constexpr KeyRule kCount{"count", "an integer >= 1", store_count,
                         show_optional<&Options::segment_count>};
constexpr KeyRule kPattern{
    "pattern",
    "a regular expression over module paths, of at most 256 characters and without back-references",
    store_pattern, show_member<&Options::layer_pattern>};

}  // namespace

const std::vector<KeyRule>& common_keys() {
  static const auto* keys = new std::vector<KeyRule>{
      {"fullgraph", "true or false", store_flag<&Options::fullgraph>,
       show_member<&Options::fullgraph>},
      {"profile", "true or false", store_flag<&Options::profile>, show_member<&Options::profile>},
      {"accumulate", "true or false", store_flag<&Options::accumulate>,
       show_member<&Options::accumulate>},
      {"release_outputs", "true or false", store_flag<&Options::release_outputs>,
       show_member<&Options::release_outputs>},
      {"exact", "true or false", store_flag<&Options::exact>, show_member<&Options::exact>},
      {"fuse", "true or false", store_flag<&Options::fuse>, show_member<&Options::fuse>},
      {"save_ir", "true or false", store_flag<&Options::save_ir>, show_member<&Options::save_ir>},
      {"arena", R"("keep", "release" or "off")", store_arena, show_arena}};
  return *keys;
}

const std::vector<StrategyRule>& strategies() {
  static const auto* rules = [] {
    auto* table = new std::vector<StrategyRule>{
        {StrategyKind::kNone,
         "none",
         "keep what the backward needs",
         {},
         {},
         {},
         false,
         {.may_fuse = true}},
        {StrategyKind::kAll,
         "all",
         "recompute every activation of every layer",
         {{"1", "null", store_nothing}},
         {},
         {kPattern},
         false,
         {}},
        {StrategyKind::kNames,
         "names",
         "recompute values whose name contains a keyword",
         {{"2", kKeywords.accepts, store_keywords}},
         {kKeywords},
         {},
         true,
         {.matches_words = true}},
        {StrategyKind::kLayers,
         "layers",
         "recompute layers start, start + stride, ..., or the first part of them",
         {{"3", "[start, stride] with start >= 0 and stride >= 1, e.g. [0, 2]",
           store_start_and_stride},
          {"4", kRatio.accepts, store_ratio}},
         {kStart, kStride, kRatio},
         {kPattern},
         false,
         {}},
        {StrategyKind::kOps,
         "ops",
         "recompute the results of these ATen operators",
         {{"5", kOps.accepts, store_ops}},
         {kOps},
         {},
         true,
         {.matches_words = true}},
        {StrategyKind::kSegments,
         "segments",
         "keep segment boundaries only",
         {},
         {},
         {kCount},
         false,
         {.needs_profile = true, .may_fuse = true}},
        {StrategyKind::kMinCut,
         "min_cut",
         "keep a minimum cut between the forward and what the backward needs",
         {},
         min_cut_keys(),
         {},
         false,
         {.needs_profile = true}},
        {StrategyKind::kPlan,
         "plan",
         "follow a plan that was exported",
         {{"plan", "the path of a file that save_plan() wrote, or its content", store_plan,
           show_plan}},
         {},
         {kCostModel},
         true,
         {.needs_profile = true,
          .may_fuse = true,
          .wants_alternatives = true,
          .plans_whole_calls = true,
          .follows_plan_file = true}},
        {StrategyKind::kBudget,
         "budget",
         "the fastest plan whose peak fits",
         {},
         {kMemoryBudget, kTimeBudget, kCostModel},
         {kFractionOf, kUnreachable, kLeanestTime, kOnOom},
         false,
         {.needs_profile = true,
          .may_fuse = true,
          .wants_alternatives = true,
          .plans_whole_calls = true,
          .keeps_budget = true}},
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
