#include "common/parse_options.h"
#include "planner/search/budget.h"

#include <aten_recompute/errors.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

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

TEST(Budget, AnErrorNamesTheSmallestPeakThatCanBeReachedAndWhereItIs) {
  const TwoValues values;
  const std::string where =
      "; the peak is at y: operands 10.0 MiB, results 1.0 MiB, workspace 12.0 MiB, other values 0 "
      "B; this operator alone needs 23.0 MiB, so no plan can keep the budget: a smaller batch or "
      "smaller inputs would help, or \"exact\": false, which may run it slice by slice. "
      "\"unreachable\": \"leanest\" runs a plan near the smallest peak instead";
  EXPECT_EQ(error_of(values, R"("memory_budget": "22.9MiB")"),
            "memory_budget: the peak cannot be kept under 22.9 MiB; the smallest that can be "
            "reached is 23.0 MiB (0.697 of 33.0 MiB, the peak without recomputation)" +
                where);
  EXPECT_EQ(error_of(values, R"("memory_budget": 0.5)"),
            "memory_budget: the peak cannot be kept under 16.5 MiB; the smallest that can be "
            "reached is 23.0 MiB (0.697 of 33.0 MiB, the peak without recomputation with the "
            "inputs of this call)" +
                where +
                "; if other calls have larger inputs, begin with these, give bytes, or set \"of\": "
                "\"largest\"");
}

TEST(Budget, AnErrorNamesTheSmallestPeakUnderComputedCosts) {
  const TwoValues values;
  EXPECT_THAT(error_of(values, R"("memory_budget": "22.9MiB", "cost_model": "flops")"),
              HasSubstr("the smallest that can be reached is 23.0 MiB (0.697 of 33.0 MiB"));
}

TEST(Budget, AnErrorNamesSmallSharesWithThreeDigits) {
  SmallProblemBuilder b;
  const auto x = b.held("x", kMiB);
  std::vector<int32_t> values;
  for (int i = 0; i < 70; ++i)
    values.push_back(b.fresh("v" + std::to_string(i), {x}, 10 * kMiB));
  b.result(b.fresh("y", {x}, kMiB));
  b.start_backward();
  auto gradient = b.incoming("dy", kMiB);
  for (int i = 70; i-- > 0;)
    gradient = b.fresh("g" + std::to_string(i), {gradient, values[static_cast<size_t>(i)]}, kMiB);
  b.result(gradient);
  const auto problem = b.build();
  try {
    plan_budget(problem, RetentionPlan(problem), budget(R"("memory_budget": "1MiB")"));
    FAIL() << "nothing was refused";
  } catch (const BudgetUnreachableError& error) {
    EXPECT_THAT(error.what(), HasSubstr("13.0 MiB (0.0185 of 703.0 MiB,"));
  }
}

TEST(Budget, AnErrorSaysThatNumbersAboveOneCountBytesWhereTheBudgetIsTiny) {
  const TwoValues values;
  const char* hint =
      "; a number above 1 counts bytes: a share is at most 1, a size is a string such as";
  EXPECT_THAT(error_of(values, R"("memory_budget": 50)"), HasSubstr(hint));
  EXPECT_THAT(error_of(values, R"("memory_budget": "4KiB")"), Not(HasSubstr(hint)));
  EXPECT_THAT(error_of(values, R"("memory_budget": 0.000001)"), Not(HasSubstr(hint)));
}

TEST(Budget, AnErrorAdvisesSlicesWhereTheyWereNotAllowed) {
  const TwoValues values;
  EXPECT_THAT(error_of(values, R"("memory_budget": "22MiB", "exact": false)"),
              Not(HasSubstr("slice by slice")));
}

TEST(Budget, AnErrorHasTheFiguresAsFields) {
  const TwoValues values;
  try {
    values.planned(budget(R"("memory_budget": "22MiB")"));
    FAIL() << "nothing was refused";
  } catch (const BudgetUnreachableError& error) {
    EXPECT_EQ(error.smallest_peak_bytes, 23 * kMiB);
    EXPECT_EQ(error.limit_bytes, 22 * kMiB);
    EXPECT_EQ(error.unplanned_peak_bytes, 33 * kMiB);
    EXPECT_EQ(error.peak_operator.name, "y");
    EXPECT_EQ(error.peak_operator.operand_bytes, 10 * kMiB);
    EXPECT_EQ(error.peak_operator.result_bytes, kMiB);
    EXPECT_EQ(error.peak_operator.workspace_bytes, 12 * kMiB);
    EXPECT_EQ(error.peak_operator.other_bytes, 0);
  }
  try {
    values.planned(budget(R"("time_budget": 1.2, "memory_budget": "23MiB")"));
    FAIL() << "nothing was refused";
  } catch (const BudgetUnreachableError& error) {
    EXPECT_EQ(error.smallest_peak_bytes, 33 * kMiB);  // within the time, everything is kept
    EXPECT_EQ(error.limit_bytes, 23 * kMiB);
  }
}

// Returns the text between two others.
std::string between(const std::string& text, const std::string& before, const std::string& after) {
  const auto begin = text.find(before) + before.size();
  return text.substr(begin, text.find(after, begin) - begin);
}

// Sizes between 1 byte and 20 MiB, none of them round.
TEST(Budget, WhatAnErrorNamesIsABudgetThatCanBeKept) {
  for (int64_t bytes = 3; bytes < 20 * kMiB; bytes = bytes * 29 / 3 + 1) {
    SmallProblemBuilder builder;
    const auto a = builder.fresh("a", {builder.held("x", kMiB)}, 10 * bytes / 3);
    const auto b = builder.fresh("b", {a}, bytes);
    builder.result(builder.fresh("y", {b}, bytes));
    builder.start_backward();
    const auto g = builder.fresh("g", {builder.incoming("dy", bytes), b}, bytes);
    builder.result(builder.fresh("gx", {g, a}, bytes));
    auto problem = builder.build();
    problem.seconds.assign(problem.num_all_nodes(), 1e-4);  // short steps get short searches
    const auto plan = [&](const std::string& budget_text) {
      return plan_budget(problem, RetentionPlan(problem),
                         budget(R"("memory_budget": )" + budget_text));
    };
    PlanSearch search(problem, RetentionPlan(problem), {});
    const auto smallest = search.smallest_peak_bytes();
    for (const auto& refused : {std::to_string(std::max<int64_t>(2, bytes)),
                                std::to_string(smallest - 1), std::string("0.01")}) {
      try {
        plan(refused);
        FAIL() << "nothing was refused";
      } catch (const UserError& error) {
        const std::string text = error.what();
        const auto size = between(text, "that can be reached is ", " (");
        EXPECT_NO_THROW(plan('"' + size + '"')) << text;
        EXPECT_NO_THROW(plan(between(text, size + " (", " of "))) << text;
        EXPECT_NE(between(text, "kept under ", ";"), size) << text;
      }
    }
  }
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

// Among plans within both budgets, the one with the smallest peak is taken.
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

TEST(Budget, ALeanPlanDoesNotDoubleTheTimeForTheLastBytes) {
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

// Measured seconds are never the same in two processes, and plans depend on them.
TEST(Budget, AnErrorNamesTheSamePeakHoweverLongOperatorsTook) {
  SmallProblemBuilder builder;
  constexpr size_t kLayers = 24;
  std::vector<int32_t> values{builder.held("x", kMiB)};
  for (size_t i = 0; i < kLayers; ++i) {
    const std::vector<int32_t> reads = i % 3 == 2 ? std::vector<int32_t>{values[i], values[i - 1]}
                                                  : std::vector<int32_t>{values[i]};
    values.push_back(
        builder.fresh("v" + std::to_string(i), reads, static_cast<int64_t>(1 + i * 7 % 5) * kMiB));
    builder.workspace(static_cast<int64_t>(i * 11 % 7) * kMiB);
  }
  builder.result(values.back());
  builder.start_backward();
  auto gradient = builder.incoming("dy", kMiB);
  for (size_t i = kLayers; i-- > 0;) {
    gradient = builder.fresh("g" + std::to_string(i), {gradient, values[i + 1], values[i]},
                             static_cast<int64_t>(1 + i * 7 % 5) * kMiB);
    builder.workspace(static_cast<int64_t>(i * 5 % 7) * kMiB);
  }
  builder.result(gradient);
  auto problem = builder.build();
  std::set<std::string> named;
  const auto plan = [&](const std::string& text, size_t seed) {
    for (size_t i = 0; i < problem.num_all_nodes(); ++i)
      problem.seconds[i] = 1e-5 * static_cast<double>(1 + (i * 7919 + seed * 104'729) % 97);
    return plan_budget(problem, RetentionPlan(problem), budget(R"("memory_budget": )" + text));
  };
  for (size_t seed = 0; seed < 4; ++seed) {
    try {
      plan("1000", seed);
      FAIL() << "nothing was refused";
    } catch (const UserError& error) {
      named.insert(between(error.what(), "that can be reached is ", " ("));
    }
  }
  ASSERT_EQ(named.size(), 1);
  for (size_t seed = 0; seed < 8; ++seed)
    EXPECT_NO_THROW(plan('"' + *named.begin() + '"', seed)) << seed;
}

// Dropping `dear` saves more memory than dropping `cheap`, and takes much longer.
struct DearAndCheap {
  SmallProblemBuilder builder;
  Problem problem;

  DearAndCheap() {
    const auto x = builder.held("x", kMiB);
    const auto dear = builder.fresh("dear", {x}, 40 * kMiB);
    builder.seconds(20.0);
    const auto cheap = builder.fresh("cheap", {x}, 10 * kMiB);
    builder.seconds(1.0);
    builder.result(builder.fresh("y", {dear, cheap}, kMiB));
    const auto z = builder.fresh("z", {x}, kMiB);
    builder.workspace(40 * kMiB);
    builder.start_backward();
    const auto g = builder.fresh("g", {builder.incoming("dy", kMiB), z}, kMiB);
    builder.result(builder.fresh("g1", {g, cheap}, kMiB));
    builder.result(builder.fresh("g2", {g, dear}, kMiB));
    problem = builder.build();
  }
};

TEST(Budget, ALeanPlanTakesNoMoreThanItsTime) {
  const DearAndCheap values;
  Simulator simulator(values.problem);
  const RetentionPlan unplanned(values.problem);
  const auto base = values.problem.base_seconds();
  const auto planned = [&](const std::string& keys) {
    return simulator.run(
        plan_budget(values.problem, unplanned,
                    budget(R"("memory_budget": "1MiB", "unreachable": "leanest")" + keys)));
  };
  testing::internal::CaptureStderr();
  const auto by_default = planned("");
  const auto text = testing::internal::GetCapturedStderr();
  EXPECT_LE(by_default.recompute_seconds, base);
  const auto cheap = planned(R"(, "leanest_time": 1.1)");
  EXPECT_GT(cheap.recompute_seconds, 0.0);
  EXPECT_LE(cheap.recompute_seconds, 0.1 * base);
  EXPECT_LT(by_default.peak_bytes, cheap.peak_bytes);
  EXPECT_EQ(planned(R"(, "leanest_time": 1)").recompute_seconds, 0.0);
  // A time budget holds as well.
  EXPECT_EQ(planned(R"(, "time_budget": 1.1)").peak_bytes, cheap.peak_bytes);
  EXPECT_THAT(text, HasSubstr("a plan near that runs instead: its peak of"));
}

TEST(Budget, ALeanPlanSaysWhatSmallerPeaksWouldCost) {
  const DearAndCheap values;
  testing::internal::CaptureStderr();
  plan_budget(values.problem, RetentionPlan(values.problem),
              budget(R"("memory_budget": "1MiB", "unreachable": "leanest", "leanest_time": 1.1)"));
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(", the next smaller one of "));
}

TEST(Budget, AFractionMayCountFromTheLargestInputs) {
  const TwoValues values;
  const RetentionPlan unplanned(values.problem);
  const auto planned = [&](const std::string& keys, int64_t largest) {
    Simulator simulator(values.problem);
    simulator.run(
        plan_budget(values.problem, unplanned, budget(keys), {.largest_unplanned_bytes = largest}));
    return listing(simulator);
  };
  const std::string largest = R"(, "of": "largest")";
  // 33 MiB without recomputation, 23 at least.
  EXPECT_EQ(planned(R"("memory_budget": 0.7)" + largest, 0), kDropsA);
  EXPECT_EQ(planned(R"("memory_budget": 0.7)" + largest, 50 * kMiB), kKeepsAll);
  EXPECT_EQ(planned(R"("memory_budget": 0.5)" + largest, 50 * kMiB), kDropsA);
  EXPECT_EQ(planned(R"("memory_budget": 0.7)", 50 * kMiB), kDropsA) << "by default it does not";
  // Out of reach is no error, because larger inputs may follow.
  testing::internal::CaptureStderr();
  EXPECT_EQ(planned(R"("memory_budget": 0.5)" + largest, 0), kDropsA);
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("cannot be kept under 16.5 MiB"));
  // Bytes do not count from anything.
  EXPECT_THROW(planned(R"("memory_budget": "16MiB")" + largest, 50 * kMiB), UserError);
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
  EXPECT_EQ(planned(known, 2 * peak), known);
  EXPECT_EQ(planned(known, peak / 5), found) << "made for much smaller inputs";
  EXPECT_EQ(planned(known, 5 * peak), found) << "made for much larger inputs";
  EXPECT_EQ(planned(unplanned, peak), found) << "does not fit";
}

TEST(Budget, LeavesAMarginOfAtMostHalfOfWhatRecomputationFrees) {
  // A chain of eight values, all of which the backward reads.
  SmallProblemBuilder builder;
  std::vector<int32_t> values{builder.held("x", kMiB)};
  for (int i = 0; i < 8; ++i)
    values.push_back(builder.fresh("h" + std::to_string(i), {values.back()}, 10 * kMiB));
  builder.result(builder.fresh("y", {values.back()}, kMiB));
  builder.start_backward();
  auto gradient = builder.incoming("dy", kMiB);
  for (int i = 8; i > 0; --i)
    gradient = builder.fresh("g" + std::to_string(i), {gradient, values[i]}, kMiB);
  builder.result(gradient);
  const auto problem = builder.build();
  const RetentionPlan unplanned(problem);
  Simulator simulator(problem);
  const auto planned = [&](const std::string& budget_text, double margin) {
    const auto options = budget(R"("memory_budget": ")" + budget_text + '"');
    return simulator.run(plan_budget(problem, unplanned, options, {.margin = margin})).peak_bytes;
  };
  ASSERT_GT(simulator.run(unplanned).peak_bytes, 80 * kMiB);
  const auto smallest =
      simulator.run(plan_leanest(problem, unplanned, /*num_threads=*/1)).peak_bytes;
  ASSERT_LT(smallest, 50 * kMiB);
  EXPECT_GT(planned("75MiB", 0.0), 64 * kMiB);
  EXPECT_LE(planned("75MiB", 0.2), 60 * kMiB);
  EXPECT_GT(planned("75MiB", 0.9), smallest) << "plans near the smallest peak are slow";
  EXPECT_LE(planned("75MiB", 0.9), (75 * kMiB + smallest) / 2);
  // Where a budget is the smallest peak, it is kept without a margin.
  EXPECT_EQ(planned(std::to_string(smallest) + "B", 0.9), smallest);
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
