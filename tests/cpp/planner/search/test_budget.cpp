#include "planner/search/budget.h"

#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/user_error.h"
#include "planner/search/search.h"
#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using test::listing;
using test::SmallProblemBuilder;
using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

// Two values of 10 MiB, each read once by the backward, and 12 MiB of workspace at the end of the
// forward. a costs 3 seconds, b 5. The peaks, in MiB:
//   keep both    33: a, b, y and workspace
//   drop a       23: b, y and workspace, because b is the last to read a
//   drop both    23: as before; later a, b, y and dy are 22
struct TwoValues {
  SmallProblemBuilder builder;
  int32_t a = builder.fresh("a", {builder.held("x", kMiB)}, 10 * kMiB);
  int32_t b = 0;
  Problem problem;

  TwoValues() {
    builder.seconds(3.0);
    b = builder.fresh("b", {a}, 10 * kMiB);
    builder.seconds(5.0);
    builder.result(builder.fresh("y", {b}, kMiB));
    builder.workspace(12 * kMiB);
    builder.start_backward();
    const auto dy = builder.incoming("dy", kMiB);
    const auto g1 = builder.fresh("g1", {dy, b}, kMiB);
    const auto g2 = builder.fresh("g2", {g1, a}, kMiB);
    builder.result(builder.fresh("g3", {g2}, kMiB));
    problem = builder.build();
  }

  std::string planned(const Options& options) const {
    Simulator simulator(problem);
    simulator.run(plan_budget(problem, RetentionPlan(problem), options));
    return listing(simulator);
  }
};

Options budget(const std::string& keys) {
  return parse_options(R"({"strategy": "budget", )" + keys + "}");
}

std::string error_of(const TwoValues& values, const std::string& keys) {
  try {
    const auto plan = values.planned(budget(keys));
    return "planned " + plan;
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

constexpr const char* kKeepsAll = "a b y | g1 g2 g3";
constexpr const char* kDropsA = "a b y | g1 a g2 g3";

TEST(Budget, KeepsEverythingIfThatFits) {
  const TwoValues values;
  EXPECT_EQ(values.planned(budget(R"("memory_budget": "33MiB")")), kKeepsAll);
  EXPECT_EQ(values.planned(budget(R"("memory_budget": "1GiB")")), kKeepsAll);
  EXPECT_EQ(values.planned(budget(R"("memory_budget": 1.0)")), kKeepsAll);
}

TEST(Budget, AcceptsBytes) {
  const TwoValues values;
  EXPECT_EQ(values.planned(budget(R"("memory_budget": "32.9MiB")")), kDropsA);
  EXPECT_EQ(values.planned(budget(R"("memory_budget": "23MiB")")), kDropsA);
}

TEST(Budget, AcceptsAFractionOfTheUnplannedPeak) {
  const TwoValues values;
  EXPECT_EQ(values.planned(budget(R"("memory_budget": 0.99)")), kDropsA);  // of 33 MiB
  EXPECT_EQ(values.planned(budget(R"("memory_budget": 0.7)")), kDropsA);   // 23.1 MiB
}

TEST(Budget, AnErrorNamesTheSmallestPeakThatCanBeReached) {
  const TwoValues values;
  EXPECT_EQ(error_of(values, R"("memory_budget": "22.9MiB")"),
            "memory_budget: the peak cannot be kept under 22.9 MiB; the smallest that can be "
            "reached is 23.0 MiB (0.697 of 33.0 MiB, the peak without recomputation)");
  EXPECT_THAT(error_of(values, R"("memory_budget": 0.5)"),
              HasSubstr("cannot be kept under 16.5 MiB; the smallest that can be reached is 23.0"));
}

// Keeping everything takes 3 + 5 + 1 seconds and three gradients of a second each, 12 in all.
// Recomputing a makes that 15, which is 1.25 times as much.
TEST(Budget, AcceptsAFactorOfTime) {
  const TwoValues values;
  EXPECT_EQ(values.planned(budget(R"("time_budget": 1)")), kKeepsAll);
  EXPECT_EQ(values.planned(budget(R"("time_budget": 1.24)")), kKeepsAll);
  EXPECT_EQ(values.planned(budget(R"("time_budget": 1.25)")), kDropsA);
  // More time buys nothing: the forward needs 23 MiB.
  EXPECT_EQ(values.planned(budget(R"("time_budget": 10)")), kDropsA);
}

TEST(Budget, KeepsTimeAndMemoryOrSaysThatNoPlanDoes) {
  const TwoValues values;
  EXPECT_EQ(values.planned(budget(R"("time_budget": 1.25, "memory_budget": "23MiB")")), kDropsA);
  const auto error = error_of(values, R"("time_budget": 1.2, "memory_budget": "23MiB")");
  EXPECT_THAT(error, HasSubstr("no plan keeps both; under 23.0 MiB the fastest takes 1.25"));
  EXPECT_THAT(error_of(values, R"("time_budget": 2, "memory_budget": "22MiB")"),
              HasSubstr("the smallest that can be reached is 23.0 MiB"));
}

// Of the plans that keep both budgets, the one with the smallest peak is taken.
TEST(Budget, SpendsTimeThatIsLeft) {
  const TwoValues values;
  EXPECT_EQ(values.planned(budget(R"("time_budget": 1.3, "memory_budget": "1GiB")")), kDropsA);
}

TEST(Budget, TakesTheSmallestPeakIfThatIsAskedFor) {
  const TwoValues values;
  const auto strict = error_of(values, R"("memory_budget": "1MiB")");
  EXPECT_THAT(strict, HasSubstr("cannot be kept"));
  const auto leanest =
      values.planned(budget(R"("memory_budget": "1MiB", "unreachable": "leanest")"));
  EXPECT_EQ(leanest, values.planned(budget(R"("time_budget": 1000)")));
}

TEST(Budget, TheLastBytesAreNotBoughtAtAnyPrice) {
  // Without `small` in the forward the peak is 16 MiB instead of 16.2, but it takes twice as long.
  SmallProblemBuilder builder;
  const auto small = builder.fresh("small", {builder.held("x", kMiB)}, kMiB / 5);
  builder.seconds(100.0);
  const auto a = builder.fresh("a", {small}, 10 * kMiB);
  builder.seconds(3.0);
  builder.result(builder.fresh("y", {a}, kMiB));
  builder.workspace(5 * kMiB);
  builder.start_backward();
  const auto g = builder.fresh("g", {builder.incoming("dy", kMiB), a}, kMiB);
  builder.result(builder.fresh("gx", {g, small}, kMiB));
  const auto problem = builder.build();
  Simulator simulator(problem);
  const auto keep_all = simulator.run(RetentionPlan(problem));
  const auto options = budget(R"("memory_budget": "1MiB", "unreachable": "leanest")");
  const auto planned = simulator.run(plan_budget(problem, RetentionPlan(problem), options));
  EXPECT_EQ(planned.recompute_seconds, 0.0);
  EXPECT_EQ(planned.peak_bytes, keep_all.peak_bytes);
  PlanSearch search(problem, RetentionPlan(problem), {});
  EXPECT_LT(search.smallest_peak_bytes(), planned.peak_bytes);
}

TEST(Budget, TakesAKnownPlanThatFits) {
  const TwoValues values;
  Simulator simulator(values.problem);
  const RetentionPlan unplanned(values.problem);
  const auto peak = simulator.run(unplanned).peak_bytes;
  const auto options = budget(R"("memory_budget": )" + std::to_string(peak - 1));
  const auto found = plan_budget(values.problem, unplanned, options);
  // This plan recomputes more than it has to, but it fits.
  auto known = found;
  for (auto value : simulator.droppable())
    known.set_always(value, true);
  ASSERT_LT(simulator.run(known).peak_bytes, peak);
  ASSERT_NE(known, found);
  const auto planned = [&](const RetentionPlan& plan, int64_t unplanned_peak) {
    return plan_budget(values.problem, unplanned, options, {.known = {{&plan, unplanned_peak}}});
  };
  EXPECT_EQ(planned(known, peak / 2), known);
  EXPECT_EQ(planned(known, peak / 5), found) << "made for much smaller inputs";
  EXPECT_EQ(planned(unplanned, peak), found) << "does not fit";
}

TEST(Budget, TheErrorNamesWhatOperatorsOutsideNeed) {
  const TwoValues values;
  const RetentionPlan unplanned(values.problem);
  const auto options = budget(R"("memory_budget": 0.01)");
  try {
    plan_budget(values.problem, unplanned, options, {.outside_bytes = 2 * kMiB});
    FAIL() << "nothing was refused";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), HasSubstr("as operators between the regions need 2.0 MiB"));
  }
}

}  // namespace
}  // namespace aten_recompute
