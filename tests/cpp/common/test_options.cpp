#include "common/options.h"
#include "common/parse_options.h"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/log.h"
#include "tests/cpp/support/scoped_env.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

Options make_options(StrategyKind kind) {
  Options options;
  options.strategy = kind;
  return options;
}

Options make_layers(int64_t start, int64_t stride) {
  Options options = make_options(StrategyKind::kLayers);
  options.layer_start = start;
  options.layer_stride = stride;
  return options;
}

Options make_ratio(double ratio) {
  Options options = make_options(StrategyKind::kLayers);
  options.layer_ratio = ratio;
  return options;
}

Options make_names(std::vector<std::string> keywords) {
  Options options = make_options(StrategyKind::kNames);
  options.keywords = std::move(keywords);
  return options;
}

Options make_ops(std::vector<std::string> ops) {
  Options options = make_options(StrategyKind::kOps);
  options.ops = std::move(ops);
  return options;
}

Options make_segments(int64_t count) {
  Options options = make_options(StrategyKind::kSegments);
  options.segment_count = count;
  return options;
}

Options make_fraction(double fraction) {
  Options options = make_options(StrategyKind::kBudget);
  options.memory_fraction = fraction;
  return options;
}

Options make_bytes(int64_t bytes) {
  Options options = make_options(StrategyKind::kBudget);
  options.memory_bytes = bytes;
  return options;
}

Options make_time(double time) {
  Options options = make_options(StrategyKind::kBudget);
  options.time_budget = time;
  return options;
}

struct Accepted {
  std::string text;
  Options options;
};

class AcceptedSpec : public ::testing::TestWithParam<Accepted> {};

TEST_P(AcceptedSpec, IsReadAndRoundTrips) {
  const auto& [text, expected] = GetParam();
  const Options options = parse_options(text);
  EXPECT_EQ(options, expected) << text << " was read as " << to_json(options);
  EXPECT_EQ(parse_options(to_json(options)), expected) << to_json(options);
}

INSTANTIATE_TEST_SUITE_P(
    Options, AcceptedSpec,
    ::testing::Values(
        Accepted{"", Options()}, Accepted{" \n", Options()}, Accepted{"{}", Options()},
        Accepted{R"({"strategy": "none"})", make_options(StrategyKind::kNone)},
        Accepted{R"({"1": null})", make_options(StrategyKind::kAll)},
        Accepted{R"({"1": ""})", make_options(StrategyKind::kAll)},
        Accepted{R"({"strategy": "all"})", make_options(StrategyKind::kAll)},
        Accepted{R"({"2": ["%relu", "fc"]})", make_names({"%relu", "fc"})},
        Accepted{R"({"2": "[\"%relu\"]"})", make_names({"%relu"})},
        Accepted{R"({"strategy": "names", "keywords": ["%relu"]})", make_names({"%relu"})},
        Accepted{R"({"3": [0, 2]})", make_layers(0, 2)},
        Accepted{R"({"3": "[1, 3]"})", make_layers(1, 3)},
        Accepted{R"({"3": ["1", "3"]})", make_layers(1, 3)},
        Accepted{R"({"3": [1.0, 2.0]})", make_layers(1, 2)},
        Accepted{R"({"strategy": "layers"})", make_layers(0, 1)},
        Accepted{R"({"strategy": "layers", "start": 1, "stride": 2})", make_layers(1, 2)},
        Accepted{R"({"strategy": "layers", "start": "1"})", make_layers(1, 1)},
        Accepted{R"({"4": 0.5})", make_ratio(0.5)}, Accepted{R"({"4": "0.5"})", make_ratio(0.5)},
        Accepted{R"({"4": 1})", make_ratio(1.0)},
        Accepted{R"({"strategy": "layers", "ratio": 0.3})", make_ratio(0.3)},
        Accepted{R"({"5": ["relu"]})", make_ops({"relu"})},
        Accepted{R"({"5": ["aten::relu", "mine::swish"]})", make_ops({"relu", "mine::swish"})},
        Accepted{R"({"strategy": "ops", "ops": ["relu", "gelu"]})", make_ops({"relu", "gelu"})},
        Accepted{R"({"strategy": "segments"})", make_options(StrategyKind::kSegments)},
        Accepted{R"({"strategy": "segments", "count": 4})", make_segments(4)},
        Accepted{R"({"strategy": "segments", "count": "4"})", make_segments(4)},
        Accepted{R"({"strategy": "budget", "memory_budget": 0.25})", make_fraction(0.25)},
        Accepted{R"({"strategy": "budget", "memory_budget": "0.25"})", make_fraction(0.25)},
        Accepted{R"({"strategy": "budget", "memory_budget": 1})", make_fraction(1.0)},
        Accepted{R"({"strategy": "budget", "memory_budget": 2})", make_bytes(2)},
        Accepted{R"({"strategy": "budget", "memory_budget": 1048576})", make_bytes(1048576)},
        Accepted{R"({"strategy": "budget", "memory_budget": "1048576"})", make_bytes(1048576)},
        Accepted{R"({"strategy": "budget", "memory_budget": "600MiB"})", make_bytes(629145600)},
        Accepted{R"({"strategy": "budget", "memory_budget": "1.5 GB"})", make_bytes(1500000000)},
        Accepted{R"({"strategy": "budget", "memory_budget": "512 B"})", make_bytes(512)},
        Accepted{R"({"strategy": "budget", "memory_budget": "2 B"})", make_bytes(2)},
        Accepted{R"({"strategy": "budget", "memory_budget": "600mb"})", make_bytes(600000000)},
        Accepted{R"({"strategy": "budget", "memory_budget": "600MIB"})", make_bytes(629145600)},
        Accepted{R"({"strategy": "budget", "memory_budget": "40%"})", make_fraction(0.4)},
        Accepted{R"({"strategy": "budget", "memory_budget": "100 %"})", make_fraction(1.0)},
        Accepted{R"({"strategy": "budget", "time_budget": 1.1})", make_time(1.1)},
        Accepted{R"({"strategy": "budget", "time_budget": 1})", make_time(1.0)},
        Accepted{R"({"strategy": "budget", "time_budget": "1.25"})", make_time(1.25)}));

TEST(Options, FullgraphGoesWithEveryStrategyAndWithNone) {
  EXPECT_TRUE(parse_options(R"({"fullgraph": true})").fullgraph);
  EXPECT_TRUE(parse_options(R"({"1": null, "fullgraph": "True"})").fullgraph);
  EXPECT_TRUE(parse_options(R"({"strategy": "segments", "fullgraph": 1})").fullgraph);
  EXPECT_FALSE(parse_options(R"({"strategy": "none", "fullgraph": false})").fullgraph);
}

TEST(Options, OptionsAboutTheStepGoWithEveryStrategyAndWithNone) {
  EXPECT_TRUE(parse_options(R"({"profile": true})").profile);
  EXPECT_TRUE(parse_options(R"({"4": 0.5, "profile": "true"})").profile);
  EXPECT_FALSE(parse_options(R"({"strategy": "all", "profile": false})").profile);
  EXPECT_TRUE(parse_options(R"({"accumulate": true})").accumulate);
  EXPECT_TRUE(parse_options(R"({"1": null, "accumulate": 1})").accumulate);
  EXPECT_FALSE(parse_options(R"({"strategy": "none", "accumulate": false})").accumulate);
  EXPECT_TRUE(parse_options(R"({"strategy": "all", "release_outputs": true})").release_outputs);
  EXPECT_FALSE(parse_options(R"({"strategy": "all"})").release_outputs);
  const Options options = parse_options(
      R"({"strategy": "segments", "profile": true, "accumulate": true, "release_outputs": true})");
  EXPECT_EQ(parse_options(to_json(options)), options);
}

TEST(Options, ABudgetMayHaveBothLimitsAndACostModel) {
  Options expected = make_bytes(1024);
  expected.time_budget = 1.5;
  expected.cost_model = CostModel::kFlops;
  const Options options = parse_options(
      R"({"strategy": "budget", "memory_budget": "1KiB", "time_budget": 1.5, "cost_model": "flops"})");
  EXPECT_EQ(options, expected);
  EXPECT_EQ(parse_options(to_json(options)), expected);
  EXPECT_EQ(
      parse_options(R"({"strategy": "budget", "memory_budget": 0.5, "cost_model": "measured"})"),
      make_fraction(0.5));
}

TEST(Options, AcceptsTheArgumentsOfFractionsAndLeanPlans) {
  auto expected = make_fraction(0.5);
  expected.fraction_of = FractionOf::kLargest;
  expected.leanest_if_unreachable = true;
  expected.leanest_time = 3.5;
  expected.retries_leaner = true;
  const auto options = parse_options(
      R"({"strategy": "budget", "memory_budget": 0.5, "of": "largest", "unreachable": "leanest", "leanest_time": 3.5,
          "on_oom": "retry_leaner"})");
  EXPECT_EQ(options, expected);
  EXPECT_EQ(parse_options(to_json(options)), expected);
  EXPECT_EQ(
      parse_options(
          R"({"strategy": "budget", "memory_budget": 0.5, "of": "first", "leanest_time": "2"})"),
      make_fraction(0.5));
}

TEST(Options, SaveIrIsOffByDefaultAndAppearsInJson) {
  const auto options = parse_options(R"({"strategy": "all", "save_ir": true})");
  EXPECT_TRUE(options.save_ir);
  EXPECT_EQ(to_json(options), R"({"strategy":"all","save_ir":true})");
  EXPECT_FALSE(parse_options("").save_ir);
}

TEST(Options, APatternOfLayersIsReadAndRoundTrips) {
  EXPECT_EQ(parse_options(R"({"3": [0, 2], "pattern": "blocks\\.\\d+"})").layer_pattern,
            R"(blocks\.\d+)");
  const Options options =
      parse_options(R"({"strategy": "all", "pattern": "h\\.\\d+", "fullgraph": true})");
  EXPECT_EQ(parse_options(to_json(options)), options);
}

struct Refused {
  std::string text;
  std::string message;
};

class RefusedSpec : public ::testing::TestWithParam<Refused> {};

TEST_P(RefusedSpec, ThrowsOneLineThatSaysWhy) {
  const auto& [text, message] = GetParam();
  try {
    const Options options = parse_options(text);
    FAIL() << text << " was read as " << to_json(options);
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("aten_recompute: invalid spec: " + message)) << text;
    EXPECT_THAT(error.what(), Not(HasSubstr("\n"))) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Options, RefusedSpec,
    ::testing::Values(
        Refused{
            R"({"strategy": "fastest"})",
            R"(key "strategy": got "fastest", accepted is one of none, all, names, layers, ops, segments, min_cut, plan, budget)"},
        Refused{
            R"({"strategy": "budget"})",
            R"(strategy "budget" needs the key "memory_budget" or "time_budget", accepted is a fraction of the unplanned peak in (0, 1], such as 0.4 or "40%", or bytes such as "600MiB" (units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB), or a multiple of the unplanned step time, >= 1)"},
        Refused{R"({"strategy": "budget", "memory_budget": 0})",
                R"(key "memory_budget": got 0, accepted is a fraction of the unplanned peak)"},
        Refused{R"({"strategy": "budget", "memory_budget": -0.5})",
                R"(key "memory_budget": got -0.5)"},
        // This is neither a fraction nor a whole number of bytes.
        Refused{R"({"strategy": "budget", "memory_budget": 1.5})",
                R"(key "memory_budget": got 1.5)"},
        // Some programs take "M" for 1000^2, others for 1024^2.
        Refused{
            R"({"strategy": "budget", "memory_budget": "600M"})",
            R"(key "memory_budget": got "600M", accepted is a fraction of the unplanned peak in (0, 1], such as 0.4 or "40%", or bytes such as "600MiB" (units: B, KB, MB, GB, TB, KiB, MiB, GiB, TiB))"},
        Refused{R"({"strategy": "budget", "memory_budget": "0%"})",
                R"(key "memory_budget": got "0%")"},
        Refused{R"({"strategy": "budget", "memory_budget": "101%"})",
                R"(key "memory_budget": got "101%")"},
        Refused{R"({"strategy": "budget", "memory_budget": "nan"})",
                R"(key "memory_budget": got "nan")"},
        Refused{R"({"strategy": "budget", "memory_budget": "nan%"})",
                R"(key "memory_budget": got "nan%")"},
        Refused{R"({"strategy": "budget", "memory_budget": 1e400})", "a number in it is too large"},
        Refused{R"({"strategy": "budget", "memory_budget": "MiB"})",
                R"(key "memory_budget": got "MiB")"},
        Refused{R"({"strategy": "budget", "memory_budget": "0.5 B"})",
                R"(key "memory_budget": got "0.5 B")"},
        // This number of bytes would be read back as a fraction.
        Refused{R"({"strategy": "budget", "memory_budget": "1 B"})",
                R"(key "memory_budget": got "1 B")"},
        Refused{R"({"strategy": "budget", "memory_budget": "-1MiB"})",
                R"(key "memory_budget": got "-1MiB")"},
        Refused{R"({"strategy": "budget", "memory_budget": "1e9TiB"})",
                R"(key "memory_budget": got "1e9TiB")"},
        Refused{R"({"strategy": "budget", "memory_budget": null})",
                R"(key "memory_budget": got null)"},
        Refused{
            R"({"strategy": "budget", "time_budget": 0.9})",
            R"(key "time_budget": got 0.9, accepted is a multiple of the unplanned step time, >= 1)"},
        Refused{R"({"strategy": "budget", "time_budget": "nan"})",
                R"(key "time_budget": got "nan")"},
        Refused{R"({"strategy": "budget", "time_budget": "inf"})",
                R"(key "time_budget": got "inf")"},
        Refused{R"({"strategy": "budget", "memory_budget": 0.5, "of": "last"})",
                R"(key "of": got "last", accepted is "first" or "largest")"},
        Refused{R"({"strategy": "budget", "memory_budget": 0.5, "on_oom": "retry"})",
                R"(key "on_oom": got "retry", accepted is "raise" or "retry_leaner")"},
        Refused{
            R"({"strategy": "budget", "memory_budget": 0.5, "leanest_time": 0.5})",
            R"(key "leanest_time": got 0.5, accepted is a multiple of the unplanned step time, >= 1)"},
        Refused{R"({"strategy": "budget", "memory_budget": 0.5, "cost_model": "guess"})",
                R"(key "cost_model": got "guess", accepted is "measured" or "flops")"},
        Refused{R"({"strategy": "all", "memory_budget": 0.5})",
                R"(key "memory_budget" does not belong to strategy "all")"},
        Refused{R"({"memory_budget": 0.5})", R"(key "memory_budget" needs a strategy)"},
        Refused{R"({"strategy": "all", "accumulate": "maybe"})",
                R"(key "accumulate": got "maybe", accepted is true or false)"},
        Refused{R"({"strategy": 3})", R"(key "strategy": got 3, accepted is one of none)"},
        Refused{R"({"ratio": 0.5})", R"(key "ratio" needs a strategy, accepted are none, all)"},
        Refused{R"({"color": 1})", R"(key "color" is unknown, accepted are "strategy" (none, all)"},
        Refused{R"({"strategy": "all", "6": 1})",
                R"(key "6" is unknown, accepted are "pattern", "fullgraph")"},
        Refused{"{\"a\\nb\": 1}", R"(key "a\nb" is unknown)"},
        Refused{
            R"({"strategy": "names", "ratio": 0.5})",
            R"(key "ratio" does not belong to strategy "names", accepted are "keywords", "fullgraph", "profile", "accumulate", "release_outputs", "exact", "fuse", "save_ir", "arena")"},
        Refused{
            R"({"4": 0.5, "stride": 2})",
            R"(key "stride" does not belong to the short form "4", accepted are "pattern", "fullgraph", "profile", "accumulate", "release_outputs", "exact", "fuse", "save_ir", "arena")"},
        Refused{R"({"1": null, "strategy": "all"})",
                R"(keys "1" and "strategy" both name a strategy)"},
        Refused{R"({"3": [0, 1], "4": 0.5})", R"(keys "3" and "4" both name a strategy)"},
        Refused{R"({"4": 0.5, "4": 0.6})", R"(key "4" is given twice)"},
        Refused{R"({"1": 2})", R"(key "1": got 2, accepted is null)"},
        Refused{R"({"2": []})",
                R"(key "2": got [], accepted is a non-empty list of non-empty strings)"},
        Refused{R"({"2": "relu"})", R"(key "2": got "relu", accepted is a non-empty list)"},
        Refused{R"({"2": [""]})", R"(key "2": got [""])"},
        Refused{R"({"2": ["%"]})", R"(key "2": got ["%"])"},
        Refused{R"({"2": [1]})", R"(key "2": got [1])"},
        Refused{R"({"2": null})", R"(key "2": got null)"},
        Refused{R"({"strategy": "names"})",
                R"(strategy "names" needs the key "keywords", accepted is a non-empty)"},
        Refused{R"({"strategy": "ops"})", R"(strategy "ops" needs the key "ops")"},
        Refused{R"({"3": [0]})",
                R"(key "3": got [0], accepted is [start, stride] with start >= 0 and stride >= 1)"},
        Refused{R"({"3": [0, 0]})", R"(key "3": got [0,0])"},
        Refused{R"({"3": [-1, 1]})", R"(key "3": got [-1,1])"},
        Refused{R"({"3": [0.5, 1]})", R"(key "3": got [0.5,1])"},
        Refused{R"({"3": 2})", R"(key "3": got 2)"},
        Refused{R"({"3": [0, 18446744073709551615]})", R"(key "3": got [0,18446744073709551615])"},
        Refused{R"({"strategy": "layers", "stride": 0})",
                R"(key "stride": got 0, accepted is an integer >= 1)"},
        Refused{R"({"strategy": "layers", "start": true})",
                R"(key "start": got true, accepted is an integer >= 0)"},
        Refused{R"({"strategy": "layers", "ratio": 0.5, "start": 1})",
                R"(key "ratio" cannot be combined with "start" and "stride")"},
        Refused{R"({"4": 0})", R"(key "4": got 0, accepted is a number in (0, 1])"},
        Refused{R"({"4": 1.5})", R"(key "4": got 1.5)"},
        Refused{R"({"4": "nan"})", R"(key "4": got "nan")"},
        Refused{R"({"4": "0.5x"})", R"(key "4": got "0.5x")"},
        Refused{R"({"4": [0.5]})", R"(key "4": got [0.5])"},
        Refused{R"({"5": "relu"})",
                R"(key "5": got "relu", accepted is a non-empty list of operator names)"},
        Refused{R"({"5": ["aten::"]})", R"(key "5": got ["aten::"])"},
        Refused{R"({"strategy": "segments", "count": 0})",
                R"(key "count": got 0, accepted is an integer >= 1)"},
        Refused{R"({"strategy": "layers", "pattern": "("})",
                R"(key "pattern": got "(", accepted is a regular expression)"},
        Refused{R"({"fullgraph": "maybe"})",
                R"(key "fullgraph": got "maybe", accepted is true or false)"},
        Refused{R"({"strategy": )", "not valid JSON at line 1, column 14"},
        Refused{"{\"4\":\n 0.5,}", "not valid JSON at line 2, column 6"},
        Refused{"segments", R"(got segments, which is not JSON; write {"strategy": "segments"})"},
        Refused{"[1]", "got [1], accepted is a JSON object"},
        Refused{"null", "got null, accepted is a JSON object"}));

struct Suggested {
  std::string text;
  std::string end;  // of the message; empty if nothing is suggested
};

class MistypedSpec : public ::testing::TestWithParam<Suggested> {};

TEST_P(MistypedSpec, IsRefusedWithASuggestion) {
  const auto& [text, end] = GetParam();
  try {
    const Options options = parse_options(text);
    FAIL() << text << " was read as " << to_json(options);
  } catch (const std::invalid_argument& error) {
    if (end.empty()) {
      EXPECT_THAT(error.what(), Not(HasSubstr("did you mean")));
    } else {
      EXPECT_THAT(error.what(), EndsWith("; did you mean " + end + "?"));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Options, MistypedSpec,
    ::testing::Values(
        Suggested{R"({"strategy": "budget", "memory_buget": 0.5})", R"("memory_budget")"},
        Suggested{R"({"strategy": "budget", "Memory-Budget": 0.5})", R"("memory_budget")"},
        Suggested{R"({"strategy": "budget", "budget": 0.5})",
                  R"("memory_budget" or "time_budget")"},
        Suggested{R"({"memory_budgte": 0.5})", R"("memory_budget")"},
        Suggested{R"({"stratgy": "all"})", R"("strategy")"},
        Suggested{R"({"strategy": "min_cut", "recompute_view": 1})", R"("recompute_views")"},
        Suggested{R"({"strategy": "budegt"})", R"("budget")"},
        Suggested{R"({"strategy": "ALL"})", R"("all")"},
        Suggested{R"({"strategy": "min-cut"})", R"("min_cut")"},
        Suggested{R"({"strategy": "fastest"})", ""}, Suggested{R"({"color": 1})", ""},
        Suggested{R"({"strategy": "all", "6": 1})", ""}, Suggested{R"({"": 1})", ""}));

TEST(Options, JsonIsCanonicalAndDescriptionsAreShort) {
  EXPECT_EQ(to_json(parse_options("")), R"({"strategy":"none"})");
  EXPECT_EQ(to_json(parse_options(R"({"3": [0, 2]})")),
            R"({"strategy":"layers","start":0,"stride":2})");
  EXPECT_EQ(to_json(parse_options(R"({"4": 0.5, "fullgraph": true})")),
            R"({"strategy":"layers","ratio":0.5,"fullgraph":true})");
  EXPECT_EQ(describe(parse_options("")), "none");
  EXPECT_EQ(describe(parse_options(R"({"3": [0, 2]})")), "layers start=0 stride=2");
  EXPECT_EQ(describe(parse_options(R"({"2": ["%relu", "fc"]})")), "names keywords=%relu, fc");
  EXPECT_EQ(describe(parse_options(R"({"strategy": "segments", "count": 4, "fullgraph": true})")),
            "segments count=4 fullgraph=true");
  EXPECT_EQ(to_json(parse_options(R"({"strategy": "budget", "memory_budget": "1KiB",)"
                                  R"( "cost_model": "flops", "accumulate": true})")),
            R"({"strategy":"budget","memory_budget":1024,"cost_model":"flops","accumulate":true})");
  EXPECT_EQ(describe(parse_options(R"({"strategy": "budget", "memory_budget": 0.5})")),
            "budget memory_budget=0.5");
}

TEST(Options, HelpNamesEveryStrategy) {
  const std::string help = strategy_help();
  for (const char* name : {"none: ", "all: ", "names: ", "layers: ", "ops: ", "segments: ",
                           "budget: ", "{\"4\": ...}"}) {
    EXPECT_THAT(help, HasSubstr(name));
  }
}

class ResolveOptions : public ::testing::Test {
 protected:
  void SetUp() override {
    env_.unset("RECOMPUTE");
    env_.unset("RECOMPUTE_LOG_LEVEL");
    set_log_sink_for_testing([this](LogLevel level, const std::string& message) {
      EXPECT_EQ(level, LogLevel::kWarning);
      warnings_.push_back(message);
    });
  }

  void TearDown() override { set_log_sink_for_testing(nullptr); }

  test::ScopedEnv env_;
  std::vector<std::string> warnings_;
};

TEST_F(ResolveOptions, WithNeitherSpecNorVariableNothingIsRecomputed) {
  EXPECT_EQ(resolve_options(""), Options());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(ResolveOptions, TheVariableDecidesWhereTheSpecNamesNoStrategy) {
  env_.set("RECOMPUTE", R"({"3": [0, 2]})");
  EXPECT_EQ(resolve_options(""), make_layers(0, 2));
  Options expected = make_layers(0, 2);
  expected.fullgraph = true;
  EXPECT_EQ(resolve_options(R"({"fullgraph": true})"), expected);
}

// The spec sets the keys of every strategy even if the variable names the strategy.
TEST_F(ResolveOptions, TheSpecsCommonKeysGoWithTheVariablesStrategy) {
  env_.set("RECOMPUTE", R"({"strategy": "budget", "memory_budget": 0.5, "profile": true})");
  Options expected = make_fraction(0.5);
  expected.accumulate = true;
  EXPECT_EQ(resolve_options(R"({"accumulate": true, "profile": false})"), expected);
}

TEST_F(ResolveOptions, TheSpecComesBeforeTheVariable) {
  env_.set("RECOMPUTE", R"({"1": null, "fullgraph": true})");
  EXPECT_EQ(resolve_options(R"({"strategy": "none"})"), Options());
  EXPECT_EQ(resolve_options(R"({"fullgraph": false})"), make_options(StrategyKind::kAll));
  EXPECT_TRUE(resolve_options("").fullgraph);
}

TEST_F(ResolveOptions, AnInvalidVariableWarnsAndRecomputesNothing) {
  env_.set("RECOMPUTE", R"({"4": 2})");
  Options expected;
  expected.fullgraph = true;
  EXPECT_EQ(resolve_options(R"({"fullgraph": true})"), expected);
  EXPECT_THAT(warnings_,
              ElementsAre("the environment variable RECOMPUTE is invalid, nothing is recomputed: "
                          "key \"4\": got 2, accepted is a number in (0, 1]"));
}

TEST_F(ResolveOptions, AnInvalidVariableDoesNotMatterWhereTheSpecNamesAStrategy) {
  env_.set("RECOMPUTE", "nonsense");
  EXPECT_EQ(resolve_options(R"({"1": null})"), make_options(StrategyKind::kAll));
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(ResolveOptions, AnInvalidSpecThrowsWhateverTheVariableIs) {
  env_.set("RECOMPUTE", R"({"1": null})");
  EXPECT_THROW(resolve_options("nonsense"), std::invalid_argument);
  EXPECT_THAT(warnings_, SizeIs(0));
}

}  // namespace
}  // namespace aten_recompute
