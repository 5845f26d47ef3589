#include "planner/model/plan_file.h"
#include "planner/model/problem_json.h"

#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using Json = nlohmann::json;
using ::testing::HasSubstr;

// The backward reads a (10 bytes) and b (20 bytes); a can also be computed from c.
struct Region {
  explicit Region(const std::string& prefix = "") {
    test::SmallProblemBuilder builder;
    const auto x = builder.held(prefix + "x", 100);
    a = builder.fresh(prefix + "a", {x}, 10);
    b = builder.fresh(prefix + "b", {a}, 20);
    c = builder.fresh(prefix + "c", {b}, 40);
    builder.result(c);
    builder.start_backward();
    const auto dc = builder.incoming(prefix + "dc", 40);
    const auto db = builder.fresh(prefix + "db", {dc, b}, 20);
    builder.result(builder.fresh(prefix + "da", {db, a}, 10));
    instead = builder.alternative(a, {x}, 0.5);
    problem = builder.build();
  }

  int32_t a = 0, b = 0, c = 0, instead = 0;
  Problem problem;
};

RetentionPlan plan_that_drops_a(const Region& region) {
  RetentionPlan plan(region.problem);
  plan.drop(region.a, 0);
  plan.choose(region.problem.producer[region.a], region.instead);
  return plan;
}

void expect_plan_refused(const Problem& problem, const std::string& text,
                         const std::string& message) {
  try {
    plan_from_file(problem, text);
    FAIL() << "accepted: " << text;
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr(message));
  }
}

// A plan file for the region, with one entry of its only part changed.
std::string changed_plan(const Region& region, const char* key, const Json& value) {
  auto json = Json::parse(plan_file({plan_to_json(region.problem, plan_that_drops_a(region))}));
  json["regions"][0][key] = value;
  return json.dump();
}

TEST(PlanFile, APlanIsReadAsItWasWritten) {
  const Region region;
  const auto plan = plan_that_drops_a(region);
  const auto text = plan_file({plan_to_json(region.problem, plan)});
  EXPECT_NO_THROW(check_plan_file(text));
  EXPECT_EQ(plan_from_file(region.problem, text), plan);
}

TEST(PlanFile, RefusesPartsThatAreNoListsOrObjects) {
  const Region region;
  expect_plan_refused(region.problem, changed_plan(region, "drop", Json::array({"a"})),
                      "are objects");
  expect_plan_refused(region.problem, changed_plan(region, "instead", 3), "are objects");
  expect_plan_refused(region.problem, changed_plan(region, "handed", {{"a", 1}}), "is a list");
  expect_plan_refused(region.problem, changed_plan(region, "drop", {{"a", 0}}),
                      "expected a list of slots");
  expect_plan_refused(region.problem, std::string(100'000, '['), "nested more than 64 levels deep");
}

// A file may call its values anything; errors go to terminals and logs.
TEST(PlanFile, ErrorsAreOneLine) {
  const Region region;
  expect_plan_refused(region.problem, changed_plan(region, "drop", {{"a\nb", {0}}}),
                      R"(value "a\nb")");
  expect_plan_refused(region.problem, changed_plan(region, "instead", {{"a", "x\ny"}}),
                      R"(by "x\ny")");
}

TEST(PlanFile, SaysWhatIsSavedAndRecomputed) {
  const Region region;
  const auto json = Json::parse(plan_to_json(region.problem, plan_that_drops_a(region)));
  EXPECT_EQ(json["saved"], Json::parse(R"([{"value": "c", "bytes": 40},
                                           {"value": "b", "bytes": 20}])"));
  EXPECT_EQ(json["recomputed"], Json::parse(R"([{"value": "a", "bytes": 10}])"));
  EXPECT_EQ(json["drop"], Json::parse(R"({"a": [0]})"));
  EXPECT_EQ(json["instead"], Json::parse(R"({"a": "a_instead"})"));
  EXPECT_EQ(json["steps"], Json::parse(R"(["a, for da"])"));
  EXPECT_EQ(json["saved_bytes"], 60);
  EXPECT_EQ(json["recompute_seconds"], 0.5);
}

TEST(PlanFile, NamesTheLayersOfValuesWhereTheyAreKnown) {
  Region region;
  region.problem.layers = {"net.0"};
  region.problem.places.resize(region.problem.num_all_nodes());
  region.problem.places[region.problem.producer[region.a]].layer = 0;
  const auto json = Json::parse(plan_to_json(region.problem, plan_that_drops_a(region)));
  EXPECT_EQ(json["recomputed"][0]["layer"], "net.0");
  EXPECT_FALSE(json["saved"][0].contains("layer"));
}

TEST(PlanFile, DropsWithoutEffectAreLeftOut) {
  const Region region;
  RetentionPlan plan(region.problem);
  plan.drop(region.c, 0);
  plan.drop(region.b, 2);  // not read after slot 1
  const auto json = Json::parse(plan_to_json(region.problem, plan));
  EXPECT_TRUE(json["drop"].empty());
}

TEST(PlanFile, SaysNothingOfValuesWithoutMemoryOfTheirOwn) {
  test::SmallProblemBuilder builder;
  const auto x = builder.held("x", 100);
  const auto a = builder.fresh("a", {x}, 10);
  const auto view = builder.view("view", {a});
  const auto empty = builder.fresh("empty", {a}, 0);
  builder.result(builder.fresh("c", {view, empty}, 40));
  builder.start_backward();
  builder.result(builder.fresh("da", {builder.incoming("dc", 40), view, empty}, 10));
  const auto problem = builder.build();
  const auto json = Json::parse(plan_to_json(problem, RetentionPlan(problem)));
  EXPECT_EQ(json["saved"], Json::parse(R"([{"value": "c", "bytes": 40},
                                           {"value": "a", "bytes": 10}])"));
}

// What a region is handed is dropped after the forward, and comes again for the backward.
TEST(PlanFile, HandedValuesAreDroppedAfterTheForward) {
  const Region region;
  const auto x = region.problem.inputs[region.problem.producer[region.a]][0];
  const auto plan = plan_from_file(region.problem, changed_plan(region, "handed", {x}));
  for (size_t slot = 0; slot < plan.num_slots(); ++slot)
    EXPECT_EQ(plan.dropped(x, slot), slot == 0) << slot;
  for (const auto& none : {Json(region.a), Json(region.problem.num_values()), Json(-1), Json("x")})
    expect_plan_refused(region.problem, changed_plan(region, "handed", Json::array({none})),
                        "the region is handed no value " + none.dump());
}

TEST(PlanFile, EqualRegionsTakeTheirPlansInOrder) {
  const Region region;
  const RetentionPlan keep_all(region.problem);
  const auto drop = plan_that_drops_a(region);
  const auto text =
      plan_file({plan_to_json(region.problem, keep_all), plan_to_json(region.problem, drop)});
  const auto plans = plans_from_file({&region.problem, &region.problem, &region.problem}, text);
  ASSERT_EQ(plans.size(), 3U);
  EXPECT_EQ(plans[0], keep_all);
  EXPECT_EQ(plans[1], drop);
  EXPECT_EQ(plans[2], drop) << "runs without a part of their own take the last one";
}

TEST(PlanFile, RefusesWhatIsNoPlanFile) {
  const Region region;
  expect_plan_refused(region.problem, "{", "plan: no valid JSON: ");
  expect_plan_refused(region.problem, "{}", "plan: not a plan file");
  expect_plan_refused(region.problem, R"({"format": "other", "regions": []})",
                      R"("format" is "other", expected "aten_recompute.plan/1")");
  EXPECT_THROW(check_plan_file("[]"), std::invalid_argument);
  for (const char* regions : {"5", "[5]", "[{}]", R"([{"region": 5}])"}) {
    expect_plan_refused(
        region.problem,
        std::string(R"({"format": "aten_recompute.plan/1", "regions": )") + regions + "}",
        "plan: \"regions\" is no list of objects that have a text \"region\"");
  }
}

TEST(PlanFile, RefusesThePlanOfAnotherModel) {
  const Region region;
  const Region other("other.");
  const auto text = plan_file({plan_to_json(other.problem, RetentionPlan(other.problem))});
  expect_plan_refused(region.problem, text, "plan: made for another model");
}

TEST(PlanFile, RefusesWhatTheRegionDoesNotHave) {
  const Region region;
  expect_plan_refused(region.problem, changed_plan(region, "drop", {{"z", {0}}}),
                      "the region has no value \"z\"");
  expect_plan_refused(region.problem, changed_plan(region, "drop", {{"a", {3}}}),
                      "\"a\" is dropped in slot 3, slots are 0 to 2");
  expect_plan_refused(region.problem, changed_plan(region, "drop", {{"a", {-1}}}), "in slot -1");
  expect_plan_refused(region.problem, changed_plan(region, "instead", {{"a", "b"}}),
                      "\"a\" cannot be computed by \"b\"");
  expect_plan_refused(region.problem, changed_plan(region, "instead", {{"x", "a_instead"}}),
                      "\"x\" cannot be computed by");
}

// The second result comes with the first one again, before anything asks for it.
TEST(PlanFile, ADropBesideAnotherOfTheSameNodeIsReadBack) {
  test::SmallProblemBuilder builder;
  const auto x = builder.held("x", 100);
  const auto results = builder.fresh({x}, {{"mean", 10}, {"deviation", 20}});
  builder.result(builder.fresh("c", results, 5));
  builder.start_backward();
  const auto first = builder.fresh("first", {builder.incoming("dc", 5), results[0]}, 5);
  builder.result(builder.fresh("second", {first, results[1]}, 5));
  const auto problem = builder.build();
  RetentionPlan plan(problem);
  plan.drop(results[0], 0);
  plan.drop(results[1], 0);
  const auto read = plan_from_file(problem, plan_file({plan_to_json(problem, plan)}));
  Simulator simulator(problem);
  const auto expected = simulator.run(plan);
  const auto found = simulator.run(read);
  EXPECT_EQ(found.saved_bytes, expected.saved_bytes);
  EXPECT_EQ(found.peak_bytes, expected.peak_bytes);
}

TEST(PlanFile, KeptBranchesAreReadAsTheyWereWritten) {
  const KeptBranches kept{{"forward", {2, 5}}};
  EXPECT_EQ(kept_branches_of(plan_file({}, kept)), kept);
  EXPECT_TRUE(kept_branches_of(plan_file({})).empty());
  auto json = Json::parse(plan_file({}, kept));
  json["kept_branches"]["forward"] = "all";
  EXPECT_THROW(check_plan_file(json.dump()), std::invalid_argument);
}

}  // namespace
}  // namespace aten_recompute
