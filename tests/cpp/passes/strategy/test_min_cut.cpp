#include "common/parse_options.h"
#include "passes/strategy/min_cut.h"

#include <map>
#include <stdexcept>

#include "tests/cpp/support/profiled_region.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using test::Memory;
using test::region;
using Region = test::ProfiledRegion;

class MinCut : public test::TorchTest {};

MinCutPlan plan_of(const Region& region, const std::string& options) {
  const auto parsed =
      parse_options(R"({"strategy": "min_cut")" + (options.empty() ? "" : ", " + options) + "}");
  std::vector<bool> is_attribute(region.joint.num_inputs, true);
  is_attribute[0] = false;  // x is the batch, w and what follows are parameters
  return plan_min_cut(region.joint, region.graph, region.profile, is_attribute, parsed.min_cut);
}

std::vector<std::string> saved(const Region& region, const std::string& options = "") {
  return test::saved_names(region.joint, plan_of(region, options).plan);
}

std::vector<std::string> banned(const Region& region, const std::string& options = "") {
  std::vector<std::string> lines;
  for (const auto& each : plan_of(region, options).banned)
    lines.push_back(each.value + ": " + each.reason);
  return lines;
}

const std::string kExp = "%a : Tensor = aten::exp(%h)";
const std::string kSoftmax = "%a : Tensor = aten::softmax(%h, %one, %none)";
const std::string kSoftmaxExp = kSoftmax + "\n  %b : Tensor = aten::exp(%a)";
const std::string kReadsA = "%d : Tensor = aten::mul(%dy, %a)";
const std::string kReadsB = "%d : Tensor = aten::mul(%dy, %b)";
const std::string kMultipliesA = "%d : Tensor = aten::mm(%dy, %a)";
const Memory kSmallH{{{"h", 100}}, {}};

// ---- the network ----

// Saving h costs 100 * 1.1^2, and saving a costs 1000 * 1.1 * 2.
TEST_F(MinCut, TheCheaperValueIsSaved) {
  const auto small_h = region(kExp, kReadsA, kSmallH);
  EXPECT_THAT(saved(small_h), ElementsAre("h"));
  const auto small_a = region(kExp, kReadsA, {{{"a", 100}}, {}});
  EXPECT_THAT(saved(small_a), ElementsAre("a"));
}

TEST_F(MinCut, UnneededValuesAreNeitherSavedNorBanned) {
  const auto idle = region(kExp, "%d : Tensor = aten::neg(%dy)", {});
  EXPECT_THAT(saved(idle), IsEmpty());
  EXPECT_THAT(banned(idle), IsEmpty());
}

// Both a and b can be computed from h, so h is paid for once.
TEST_F(MinCut, OneSavedValueServesSeveralReaders) {
  const auto both = region("%a : Tensor = aten::exp(%h)\n  %b : Tensor = aten::sin(%h)",
                           "%e : Tensor = aten::mul(%dy, %a)\n  %d : Tensor = aten::mul(%e, %b)",
                           {{{"h", 3000}}, {}});
  EXPECT_THAT(saved(both), ElementsAre("h"));
  const auto one = region(kExp, kReadsA, {{{"h", 3000}}, {}});
  EXPECT_THAT(saved(one), ElementsAre("a"));
}

TEST_F(MinCut, OutputsOfTheRegionAreFreeToSave) {
  EXPECT_THAT(saved(region(kExp, kReadsA, {{{"a", 5000}}, {}}, "a")), ElementsAre("a"));
  const auto view =
      region(kExp + "\n  %t : Tensor = aten::t(%a)", kReadsA, {{{"a", 5000}}, {{"t", "a"}}}, "t");
  EXPECT_THAT(saved(view), ElementsAre("a"));
}

// A list has no memory of its own; its elements, or their bases, are saved.
TEST_F(MinCut, ListsAreNotSaved) {
  const auto pieces = region(
      "%s : Tensor[] = aten::split(%h, %one, %zero)\n"
      "  %a : Tensor, %b : Tensor = prim::ListUnpack(%s)",
      kMultipliesA, {{}, {{"s", "h"}, {"a", "h"}, {"b", "h"}}});
  EXPECT_THAT(saved(pieces), ElementsAre("a"));
  const auto retention = retention_of(pieces.graph, plan_of(pieces, "").plan);
  const auto* h = test::find_value(*pieces.joint.graph, "h");
  EXPECT_FALSE(retention.dropped(pieces.graph.index.at(h), 0));
  const auto gathered = region(
      "%l : Tensor[] = prim::ListConstruct(%h, %h)\n"
      "  %a : Tensor = aten::stack(%l, %zero)",
      kMultipliesA, {{{"a", 5000}}, {{"l", "h"}}});
  EXPECT_THAT(saved(gathered, R"("aggressive_recomputation": true)"), ElementsAre("h"));
}

TEST_F(MinCut, ResultsOfOperatorsThatRunOnceAreSaved) {
  const auto branch = region(R"(%a : Tensor = prim::If(%false)
    block0():
      %b : Tensor = aten::exp(%h)
      -> (%b)
    block1():
      -> (%h))",
                             kReadsA, kSmallH);
  EXPECT_THAT(saved(branch, R"("aggressive_recomputation": true)"), ElementsAre("a"));
  EXPECT_THAT(banned(branch, R"("aggressive_recomputation": true)"),
              ElementsAre("h: among compute_intensive_ops", "a: control flow"));
}

// ---- lists of operators ----

TEST_F(MinCut, BanIfNotInAllowlistBansUnlistedOperators) {
  const auto softmax = region(kSoftmaxExp, kReadsB, kSmallH);
  EXPECT_THAT(saved(softmax), ElementsAre("a"));
  EXPECT_THAT(banned(softmax),
              ElementsAre("h: not among recomputable_ops (ban_if_not_in_allowlist)",
                          "a: not among recomputable_ops (ban_if_not_in_allowlist)"));
  EXPECT_THAT(saved(softmax, R"("ban_if_not_in_allowlist": false)"), ElementsAre("h"));
  EXPECT_THAT(banned(softmax, R"("ban_if_not_in_allowlist": false)"),
              ElementsAre("h: among compute_intensive_ops"));
}

TEST_F(MinCut, RecomputableOpsReplaceTheDefaultList) {
  const auto exp = region(kExp, kReadsA, kSmallH);
  EXPECT_THAT(saved(exp, R"("recomputable_ops": ["relu"])"), ElementsAre("a"));
  EXPECT_THAT(saved(exp, R"("recomputable_ops": [])"), ElementsAre("a"));
  EXPECT_THAT(saved(exp, R"("recomputable_ops": ["aten::exp", "mul"])"), ElementsAre("h"));
  const auto softmax = region(kSoftmax, kReadsA, kSmallH);
  EXPECT_THAT(saved(softmax, R"("recomputable_ops": ["softmax", "mul"])"), ElementsAre("h"));
}

TEST_F(MinCut, ComputeIntensiveOpsReplaceTheDefaultList) {
  const auto softmax = region(kSoftmaxExp, kReadsB, {{{"h", 100}, {"x", 10}, {"w", 10}}, {}});
  const std::string off = R"("ban_if_not_in_allowlist": false, "compute_intensive_ops": )";
  EXPECT_THAT(saved(softmax, off + R"(["softmax"])"), ElementsAre("a"));
  EXPECT_THAT(saved(softmax, off + R"(["mm"])"), ElementsAre("h"));
  // They are computed from x, which is available in any case.
  EXPECT_THAT(saved(softmax, off + "[]"), IsEmpty());
}

TEST_F(MinCut, AggressiveRecomputationBansComputeIntensiveOperatorsOnly) {
  const auto softmax = region(kSoftmax, kMultipliesA, kSmallH);
  EXPECT_THAT(saved(softmax), ElementsAre("a"));
  EXPECT_THAT(saved(softmax, R"("aggressive_recomputation": true)"), ElementsAre("h"));
}

TEST_F(MinCut, RandomOperatorsRunAgainOnRequest) {
  const auto mask =
      region("%a : Tensor = aten_recompute::dropout_mask(%h, %half)", kReadsA, kSmallH);
  for (const std::string aggressive : {"", R"("aggressive_recomputation": true, )"}) {
    EXPECT_THAT(saved(mask, aggressive + R"("recompute_random": false)"), ElementsAre("a"));
    EXPECT_THAT(saved(mask, aggressive + R"("recompute_random": true)"), ElementsAre("h"));
  }
  EXPECT_THAT(banned(mask), ElementsAre(HasSubstr("h: "), "a: random (recompute_random)"));
}

// ---- bans ----

// exp cannot be fused with the product, so it would have to write a to memory in the backward.
TEST_F(MinCut, BanIfMaterializedBackwardBansOperandsOfUnfusibleNodes) {
  const auto product = region(kExp, kMultipliesA, kSmallH);
  EXPECT_THAT(saved(product), ElementsAre("a"));
  EXPECT_THAT(banned(product), ElementsAre(HasSubstr("h: "),
                                           "a: written to memory in the backward "
                                           "(ban_if_materialized_backward)"));
  EXPECT_THAT(saved(product, R"("ban_if_materialized_backward": false)"), ElementsAre("h"));
}

TEST_F(MinCut, BanIfMaterializedBackwardSeesThroughViews) {
  const auto product = region(kExp + "\n  %t : Tensor = aten::t(%a)",
                              "%d : Tensor = aten::mm(%dy, %t)", {{{"h", 100}}, {{"t", "a"}}});
  EXPECT_THAT(banned(product), ElementsAre(HasSubstr("h: "), HasSubstr("a: written to memory")));
  EXPECT_THAT(saved(product, R"("ban_if_materialized_backward": false)"), ElementsAre("h"));
}

// The producer of a cat's operand writes into the result; a stack reads its operands from memory.
TEST_F(MinCut, EverythingFusesIntoACat) {
  for (const auto& [op, expected] :
       std::map<std::string, std::string>{{"cat", "h"}, {"stack", "a"}}) {
    const auto joined = region(kExp,
                               "%l : Tensor[] = prim::ListConstruct(%dy, %a)\n"
                               "  %d : Tensor = aten::" +
                                   op + "(%l, %zero)",
                               kSmallH);
    EXPECT_THAT(saved(joined), ElementsAre(expected)) << op;
  }
}

// The sum can be computed from h, which is saved anyway, but is small enough to be saved as well.
TEST_F(MinCut, BanIfReductionBansLargeReductions) {
  const std::string sum = "%a : Tensor = aten::sum(%h, %none)";
  const std::string reads_both =
      "%e : Tensor = aten::mul(%dy, %h)\n  %d : Tensor = aten::mul(%e, %a)";
  const auto small = region(sum, reads_both, {{{"a", 240}}, {}});
  EXPECT_THAT(saved(small), ElementsAre("h", "a"));
  EXPECT_THAT(
      banned(small),
      ElementsAre(HasSubstr("h: "), "a: 4 times smaller than its operands (ban_if_reduction)"));
  EXPECT_THAT(saved(small, R"("ban_if_reduction": false)"), ElementsAre("h"));
  EXPECT_THAT(saved(small, R"("reduction_ratio": 4.5)"), ElementsAre("h"));
  const auto larger = region(sum, reads_both, {{{"a", 260}}, {}});
  EXPECT_THAT(saved(larger), ElementsAre("h"));
  EXPECT_THAT(saved(larger, R"("reduction_ratio": 3.5)"), ElementsAre("h", "a"));
  // The ban also holds under aggressive_recomputation.
  EXPECT_THAT(saved(small, R"("aggressive_recomputation": true)"), ElementsAre("h", "a"));
}

// An operator that reads a slice reads less than the storage.
TEST_F(MinCut, ReductionsCompareTensorsNotStorages) {
  const auto slice = region(
      "%s : Tensor = aten::slice(%h, %zero, %zero, %one, %one)\n  %a : Tensor = aten::exp(%s)",
      "%e : Tensor = aten::mul(%dy, %h)\n  %d : Tensor = aten::mul(%e, %a)",
      {{{"s", 100}, {"a", 100}}, {{"s", "h"}}});
  EXPECT_THAT(saved(slice), ElementsAre("h"));
}

// The forward reader of a comes after a product that depends on a.
TEST_F(MinCut, BanIfUsedFarApartBansValuesWithDistantReaders) {
  const auto apart = region(R"(%a : Tensor = aten::exp(%h)
  %b : Tensor = aten::sin(%a)
  %c : Tensor = aten::mm(%b, %w)
  %far : Tensor = aten::mul(%a, %c))",
                            "%d : Tensor = aten::mul(%dy, %far)", {{{"h", 100}, {"c", 100}}, {}});
  EXPECT_THAT(saved(apart), ElementsAre("far"));
  EXPECT_THAT(banned(apart),
              ElementsAre(HasSubstr("h: "), HasSubstr("c: "),
                          "far: reads a value used far apart (ban_if_used_far_apart)"));
  EXPECT_THAT(saved(apart, R"("ban_if_used_far_apart": false)"), ElementsAre("h", "c"));
}

TEST_F(MinCut, ReadersBeforeTheFirstUnfusibleOneAreNear) {
  const auto near = region(R"(%a : Tensor = aten::exp(%h)
  %b : Tensor = aten::sin(%a)
  %far : Tensor = aten::mul(%a, %b)
  %c : Tensor = aten::mm(%b, %w))",
                           "%d : Tensor = aten::mul(%dy, %far)", kSmallH);
  EXPECT_THAT(saved(near), ElementsAre("h"));
}

TEST_F(MinCut, BanIfLongFusibleChainsCutsLongChains) {
  const auto chain = region(R"(%a : Tensor = aten::exp(%h)
  %b : Tensor = aten::sin(%a)
  %c : Tensor = aten::exp(%b)
  %e : Tensor = aten::sin(%c))",
                            "%d : Tensor = aten::mul(%dy, %e)", kSmallH);
  EXPECT_THAT(saved(chain), ElementsAre("h"));
  EXPECT_THAT(saved(chain, R"("max_fusible_depth": 3)"), ElementsAre("h"));
  // a is at 1, so e, at 4, is more than 2 behind the start of the chain.
  EXPECT_THAT(saved(chain, R"("max_fusible_depth": 2)"), ElementsAre("e"));
  EXPECT_THAT(
      banned(chain, R"("max_fusible_depth": 2)"),
      ElementsAre(HasSubstr("h: "), "e: end of a long fusible chain (ban_if_long_fusible_chains)"));
  EXPECT_THAT(saved(chain, R"("max_fusible_depth": 2, "ban_if_long_fusible_chains": false)"),
              ElementsAre("h"));
}

// b is at distance 1 from the backward, and a at 2.
TEST_F(MinCut, MaxDistFromBwLimitsTheDistanceFromTheBackward) {
  const auto chain =
      region(kExp + "\n  %b : Tensor = aten::sin(%a)", "%d : Tensor = aten::mul(%dy, %b)", kSmallH);
  EXPECT_THAT(saved(chain), ElementsAre("h"));
  EXPECT_THAT(saved(chain, R"("max_dist_from_bw": 2)"), ElementsAre("h"));
  EXPECT_THAT(saved(chain, R"("max_dist_from_bw": 1)"), ElementsAre("b"));
  EXPECT_THAT(banned(chain, R"("max_dist_from_bw": 1)"),
              ElementsAre(HasSubstr("h: "), "a: far from the backward (max_dist_from_bw)"));
}

// ---- costs ----

// h costs 1000 * w^2, and a costs 1090 * w.
TEST_F(MinCut, DistanceWeightRaisesTheCostOfDistantValues) {
  const auto close = region(kSoftmax, kMultipliesA, {{{"a", 1090}}, {}});
  const std::string off = R"("aggressive_recomputation": true)";
  EXPECT_THAT(saved(close, off), ElementsAre("a"));
  EXPECT_THAT(saved(close, off + R"(, "distance_weight": 1.0)"), ElementsAre("h"));
  EXPECT_THAT(saved(close, off + R"(, "distance_weight": 1.08)"), ElementsAre("h"));
}

// h, which mm writes in any case, costs 1000 * 1.1^2; a, which a compiler would write only to save
// it, costs 600 * 1.1 * 2.
TEST_F(MinCut, NotMaterializedWeightRaisesTheCostOfFusedValues) {
  const auto fused = region(kExp, kReadsA, {{{"a", 600}}, {}});
  EXPECT_THAT(saved(fused), ElementsAre("h"));
  EXPECT_THAT(saved(fused, R"("not_materialized_weight": 1)"), ElementsAre("a"));
}

TEST_F(MinCut, RecomputeViewsLetsViewsRunAgain) {
  const auto view =
      region("%t : Tensor = aten::t(%h)", "%d : Tensor = aten::mm(%dy, %t)", {{}, {{"t", "h"}}});
  EXPECT_THAT(saved(view), ElementsAre("t"));
  EXPECT_THAT(saved(view, R"("recompute_views": true)"), ElementsAre("h"));
}

TEST_F(MinCut, ParametersAreFreeToSave) {
  const auto of_parameter = region("%a : Tensor = aten::exp(%w)", kReadsA, {{{"w", 3000}}, {}});
  EXPECT_THAT(saved(of_parameter), IsEmpty());
  EXPECT_THAT(saved(of_parameter, R"("treat_parameters_as_free_to_save": false)"),
              ElementsAre("a"));
  // Other inputs are not free.
  const auto of_batch = region("%a : Tensor = aten::exp(%x)", kReadsA, {{{"x", 3000}}, {}});
  EXPECT_THAT(saved(of_batch), ElementsAre("a"));
}

// ---- tags ----

Region tagged(const std::string& tag) {
  return region(kExp + "\n  %t : Tensor = aten_recompute::" + tag + "(%a)", kReadsA,
                {{{"h", 100}}, {{"t", "a"}}});
}

TEST_F(MinCut, MustSaveOverrulesCostsAndBans) {
  EXPECT_THAT(saved(tagged("must_save")), ElementsAre("a"));
  EXPECT_THAT(saved(tagged("must_save"), R"("aggressive_recomputation": true)"), ElementsAre("a"));
  EXPECT_THAT(banned(tagged("must_save")), ElementsAre(HasSubstr("h: "), "a: tagged must_save"));
}

TEST_F(MinCut, PreferSaveYieldsToAggressiveRecomputation) {
  EXPECT_THAT(saved(tagged("prefer_save")), ElementsAre("a"));
  EXPECT_THAT(saved(tagged("prefer_save"), R"("aggressive_recomputation": true)"),
              ElementsAre("h"));
}

// The tag overrules every ban and every cost.
TEST_F(MinCut, MustRecomputeAndPreferRecomputeAreObeyed) {
  for (const std::string tag : {"must_recompute", "prefer_recompute"}) {
    const auto softmax = region(kSoftmax + "\n  %t : Tensor = aten_recompute::" + tag + "(%a)",
                                kMultipliesA, {{{"h", 9000}}, {{"t", "a"}}});
    EXPECT_THAT(saved(softmax), ElementsAre("h"));
    EXPECT_THAT(banned(softmax), ElementsAre(HasSubstr("h: ")));
    const auto product = region("%t : Tensor = aten_recompute::" + tag + "(%h)",
                                "%d : Tensor = aten::mm(%dy, %t)", {{}, {{"t", "h"}}});
    EXPECT_THAT(saved(product), IsEmpty());
  }
}

// ---- options, log ----

TEST_F(MinCut, OptionsRoundTripAndDefaultsAreLeftOut) {
  EXPECT_EQ(to_json(parse_options(R"({"strategy": "min_cut"})")), R"({"strategy":"min_cut"})");
  const std::string every = R"({"strategy":"min_cut","aggressive_recomputation":true,)"
                            R"("ban_if_used_far_apart":false,"ban_if_long_fusible_chains":false,)"
                            R"("max_fusible_depth":7,"ban_if_materialized_backward":false,)"
                            R"("ban_if_not_in_allowlist":false,"recomputable_ops":["relu","a::b"],)"
                            R"("compute_intensive_ops":[],"ban_if_reduction":false,)"
                            R"("reduction_ratio":2.5,"max_dist_from_bw":3,"recompute_views":true,)"
                            R"("recompute_random":true,"treat_parameters_as_free_to_save":false,)"
                            R"("distance_weight":1.5,"not_materialized_weight":1.0})";
  EXPECT_EQ(to_json(parse_options(every)), every);
}

TEST_F(MinCut, InvalidOptionsSayWhatIsAccepted) {
  const std::map<std::string, std::string> refused = {
      {R"("ban_if_reduction": 2)", "key \"ban_if_reduction\": got 2, accepted is true or false"},
      {R"("max_fusible_depth": -1)", "got -1, accepted is an integer >= 0"},
      {R"("distance_weight": 0.5)", "got 0.5, accepted is a number in [1, 1000]"},
      {R"("reduction_ratio": "nan")", "got \"nan\", accepted is a number in [1, 1000]"},
      {R"("recomputable_ops": "relu")", "got \"relu\", accepted is a list of operator names"},
      {R"("recomputable_ops": ["aten::"])", "got [\"aten::\"], accepted is a list"},
      {R"("keywords": ["a"])", "key \"keywords\" does not belong to strategy \"min_cut\""}};
  for (const auto& [option, message] : refused) {
    EXPECT_THAT([&] { parse_options(R"({"strategy": "min_cut", )" + option + "}"); },
                ::testing::ThrowsMessage<std::invalid_argument>(
                    AllOf(HasSubstr(message), Not(HasSubstr("\n")))))
        << option;
  }
}

TEST_F(MinCut, TheSummaryIsOneLine) {
  const auto softmax = region(kSoftmax, kReadsA, {{{"a", 3 << 20}}, {}});
  EXPECT_EQ(summary(plan_of(softmax, R"("max_dist_from_bw": 0)"), softmax.graph),
            "min_cut: 2 operators banned from running again: 2 not among recomputable_ops "
            "(ban_if_not_in_allowlist); 1 value saved, 3.0 MiB");
  const auto idle = region(kExp, "%d : Tensor = aten::neg(%dy)", {});
  EXPECT_EQ(summary(plan_of(idle, ""), idle.graph),
            "min_cut: no operator banned from running again; no value saved, 0.0 MiB");
}

}  // namespace
}  // namespace aten_recompute
