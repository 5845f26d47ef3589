#include "planner/search/search.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cpp/support/no_new_threads.h"
#include "tests/cpp/support/plan_testing.h"
#include "tests/cpp/support/search_problems.h"

namespace aten_recompute {
namespace {

using test::chain;
using test::ladder;
using test::Numbers;
using test::SmallProblemBuilder;

// Returns the least seconds for each peak, by trying all plans.
std::map<int64_t, double> brute_force(const Problem& problem) {
  Simulator simulator(problem);
  std::vector<std::pair<int32_t, size_t>> bits;
  for (auto value : simulator.droppable()) {
    for (size_t slot = 0; slot <= problem.num_backward(); ++slot)
      bits.emplace_back(value, slot);
  }
  std::map<int64_t, double> best;
  for (uint64_t mask = 0; mask < uint64_t{1} << bits.size(); ++mask) {
    RetentionPlan plan(problem);
    for (size_t i = 0; i < bits.size(); ++i)
      plan.set(bits[i].first, bits[i].second, (mask >> i) & 1);
    const auto cost = simulator.run(plan);
    const auto [found, added] = best.emplace(cost.peak_bytes, cost.recompute_seconds);
    found->second = std::min(found->second, cost.recompute_seconds);
  }
  // A plan with a smaller peak also stays below a larger one.
  double least = std::numeric_limits<double>::infinity();
  for (auto& [peak, seconds] : best)
    seconds = least = std::min(least, seconds);
  return best;
}

TEST(Search, PlansCostWhatTheySay) {
  const auto problem = ladder(12);
  Simulator simulator(problem);
  const auto plans = search_frontier(problem, RetentionPlan(problem));
  ASSERT_GT(plans.size(), 5U);
  for (const auto& plan : plans) {
    const auto again = simulator.run(plan.retention);
    EXPECT_EQ(again.peak_bytes, plan.simulation.peak_bytes);
    EXPECT_EQ(again.forward_peak_bytes, plan.simulation.forward_peak_bytes);
    EXPECT_EQ(again.saved_bytes, plan.simulation.saved_bytes);
    EXPECT_EQ(again.recompute_seconds, plan.simulation.recompute_seconds);
  }
}

TEST(Search, AlongTheFrontierPeaksFallAndTimesRise) {
  const auto problem = ladder(12);
  const auto unplanned = Simulator(problem).run(RetentionPlan(problem));
  const auto plans = search_frontier(problem, RetentionPlan(problem));
  ASSERT_GT(plans.size(), 5U);
  EXPECT_EQ(plans.front().simulation.peak_bytes, unplanned.peak_bytes);
  EXPECT_EQ(plans.front().simulation.recompute_seconds, 0.0);
  for (size_t i = 1; i < plans.size(); ++i) {
    EXPECT_LT(plans[i].simulation.peak_bytes, plans[i - 1].simulation.peak_bytes);
    EXPECT_GT(plans[i].simulation.recompute_seconds, plans[i - 1].simulation.recompute_seconds);
  }
  // Recomputing has to be worth something on a ladder of 12 rungs of one size.
  EXPECT_LT(plans.back().simulation.peak_bytes, unplanned.peak_bytes / 2);
}

TEST(Search, IsDeterministic) {
  const auto problem = ladder(12);
  const auto first = search_frontier(problem, RetentionPlan(problem));
  const auto second = search_frontier(problem, RetentionPlan(problem));
  ASSERT_EQ(first.size(), second.size());
  for (size_t i = 0; i < first.size(); ++i)
    EXPECT_TRUE(first[i].retention == second[i].retention) << i;
}

TEST(Search, TrackingFewerValuesDoesNotChangeSimulations) {
  const auto problem = ladder(12);
  Simulator all(problem), some(problem);
  std::vector<int32_t> dropped;
  for (size_t i = 0; i < all.droppable().size(); i += 2)
    dropped.push_back(all.droppable()[i]);
  some.drops_only(dropped);
  Numbers numbers(3);
  for (int round = 0; round < 200; ++round) {
    RetentionPlan plan(problem);
    for (int i = 0; i < 20; ++i) {
      const auto value = dropped[static_cast<size_t>(
          numbers.between(0, static_cast<int64_t>(dropped.size()) - 1))];
      plan.drop(value, static_cast<size_t>(
                           numbers.between(0, static_cast<int64_t>(problem.num_backward()))));
    }
    // Other values may be dropped at the end of the forward.
    for (auto value : all.droppable())
      plan.set(value, 0, plan.dropped(value, 0) || numbers.between(0, 3) == 0);
    const auto expected = all.run(plan, 400);
    const auto simulation = some.run(plan, 400);
    EXPECT_EQ(simulation.peak_bytes, expected.peak_bytes);
    EXPECT_EQ(simulation.recompute_seconds, expected.recompute_seconds);
    EXPECT_EQ(simulation.excess, expected.excess);
    EXPECT_EQ(some.step_bytes(), all.step_bytes());
    EXPECT_LE(some.gaps().size(), all.gaps().size());
  }
}

TEST(Search, DoesNotDependOnTheNumberOfThreads) {
  const auto problem = ladder(12);
  const auto alone = search_frontier(problem, RetentionPlan(problem), {.num_threads = 1});
  for (size_t num_threads : {2, 3, 16}) {
    const auto together =
        search_frontier(problem, RetentionPlan(problem), {.num_threads = num_threads});
    ASSERT_EQ(alone.size(), together.size()) << num_threads;
    for (size_t i = 0; i < alone.size(); ++i)
      EXPECT_TRUE(alone[i].retention == together[i].retention) << num_threads << ' ' << i;
  }
}

TEST(Search, RunsOnTheCallingThreadWhereNoOtherStarts) {
  const auto problem = ladder(12);
  const auto expected = search_frontier(problem, RetentionPlan(problem), {.num_threads = 1});
  const test::NoNewThreads no_threads;
  const auto found = search_frontier(problem, RetentionPlan(problem), {.num_threads = 3});
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    EXPECT_TRUE(found[i].retention == expected[i].retention) << i;
}

// Each value is a tiny part of the peak, and together they are all of it.
TEST(Search, DecidesAboutThousandsOfSmallValues) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  std::vector<int32_t> values;
  for (int i = 0; i < 6000; ++i) {
    values.push_back(b.fresh("v" + std::to_string(i), {x}, 10));
    b.seconds(1.0);
  }
  b.result(b.fresh("y", {x}, 1));
  b.start_backward();
  auto gradient = b.incoming("dy", 1);
  for (int i = 6000; i-- > 0;)
    gradient = b.fresh("g" + std::to_string(i), {gradient, values[i]}, 1);
  b.result(gradient);
  const auto problem = b.build();
  const RetentionPlan unplanned(problem);
  const PlanSearch search(problem, unplanned, {.least_steps = 1, .most_steps = 1});
  EXPECT_LT(search.smallest_peak_bytes(), Simulator(problem).run(unplanned).peak_bytes / 100);
}

// Even the smallest effort must be enough to reach the smallest peaks.
TEST(Search, AShortSearchFindsUsefulPlansForEveryBudget) {
  const auto problem = chain(150, 7);
  const RetentionPlan unplanned(problem);
  const auto base = problem.base_seconds();
  PlanSearch with_care(problem, unplanned);
  PlanSearch in_a_hurry(problem, unplanned, {.least_steps = 1, .most_steps = 1});
  const auto peak = Simulator(problem).run(unplanned).peak_bytes;
  for (const int64_t percent : {80, 50, 30, 20}) {
    const auto good = with_care.fastest(peak * percent / 100);
    const auto quick = in_a_hurry.fastest(peak * percent / 100);
    ASSERT_TRUE(good.has_value() && quick.has_value()) << percent;
    EXPECT_LE(base + quick->simulation.recompute_seconds,
              1.2 * (base + good->simulation.recompute_seconds))
        << percent;
  }
}

TEST(Search, AnswersDoNotDependOnEarlierQuestions) {
  const auto problem = ladder(12);
  const RetentionPlan unplanned(problem);
  const auto peak = Simulator(problem).run(unplanned).peak_bytes;
  PlanSearch busy(problem, unplanned);
  for (int64_t percent : {90, 40, 70, 55, 30})
    busy.fastest(peak * percent / 100);
  PlanSearch fresh(problem, unplanned);
  const auto a = busy.fastest(peak * 60 / 100), b = fresh.fastest(peak * 60 / 100);
  ASSERT_TRUE(a && b);
  EXPECT_TRUE(a->retention == b->retention);
}

TEST(Search, FastestFitsAndIsNeverSlowerUnderAGreaterBudget) {
  const auto problem = ladder(16);
  PlanSearch search(problem, RetentionPlan(problem));
  const auto peak = Simulator(problem).run(RetentionPlan(problem)).peak_bytes;
  const auto smallest = search.smallest_peak_bytes();
  double previous = std::numeric_limits<double>::infinity();
  for (int64_t budget = smallest; budget <= peak; budget += (peak - smallest) / 40) {
    const auto plan = search.fastest(budget);
    ASSERT_TRUE(plan) << budget;
    EXPECT_LE(plan->simulation.peak_bytes, budget);
    EXPECT_LE(plan->simulation.recompute_seconds, previous) << budget;
    previous = plan->simulation.recompute_seconds;
  }
  EXPECT_FALSE(search.fastest(smallest - 1));
  EXPECT_EQ(search.fastest(peak)->simulation.recompute_seconds, 0.0);
}

TEST(Search, LeanestKeepsTheTimeAndMoreTimeNeverMeansALargerPeak) {
  const auto problem = ladder(12);
  PlanSearch search(problem, RetentionPlan(problem));
  const auto peak = Simulator(problem).run(RetentionPlan(problem)).peak_bytes;
  EXPECT_EQ(search.leanest(0.0).simulation.peak_bytes, peak);
  int64_t previous = peak;
  for (double percent : {0.0, 5.0, 10.0, 20.0, 50.0, 100.0, 1000.0}) {
    const double seconds = problem.base_seconds() * percent / 100.0;
    const auto plan = search.leanest(seconds);
    EXPECT_LE(plan.simulation.recompute_seconds, seconds);
    EXPECT_LE(plan.simulation.peak_bytes, previous) << percent;
    previous = plan.simulation.peak_bytes;
  }
  EXPECT_LT(previous, peak);
}

// Three values and four slots make 4096 plans, all of which are tried.
class TinyChain : public ::testing::TestWithParam<uint64_t> {};

TEST_P(TinyChain, EveryBudgetsPlanIsTheOptimum) {
  const auto problem = chain(3, GetParam());
  const auto best = brute_force(problem);
  PlanSearch search(problem, RetentionPlan(problem));
  EXPECT_EQ(search.smallest_peak_bytes(), best.begin()->first);
  for (const auto& [peak, seconds] : best) {
    const auto plan = search.fastest(peak);
    ASSERT_TRUE(plan) << peak;
    EXPECT_LE(plan->simulation.peak_bytes, peak);
    EXPECT_EQ(plan->simulation.recompute_seconds, seconds) << "under " << peak;
  }
}

INSTANTIATE_TEST_SUITE_P(Search, TinyChain, ::testing::Range<uint64_t>(0, 20));

// Dropping everything is not always leanest: g1 would recompute b at once, and a with it.
TEST(Search, TheSmallestPeakMayNeedSomethingKept) {
  SmallProblemBuilder builder;
  const auto a = builder.fresh("a", {builder.held("x", 1000)}, 10);
  const auto b = builder.fresh("b", {a}, 10);
  builder.result(builder.fresh("y", {b}, 1));
  builder.start_backward();
  const auto dy = builder.incoming("dy", 1);
  const auto g1 = builder.fresh("g1", {dy, b}, 1);
  builder.result(builder.fresh("g2", {g1, a}, 1));
  const auto problem = builder.build();
  ASSERT_EQ(brute_force(problem).begin()->first, 20);  // a b in the forward
  PlanSearch search(problem, RetentionPlan(problem));
  EXPECT_EQ(search.smallest_peak_bytes(), 20);
  const auto plan = search.fastest(20);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->simulation.recompute_seconds, 1.0);
}

TEST(Search, FindsOnePlanIfNothingCanBeDropped) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 1000)}, 10);
  b.once();
  b.result(b.fresh("y", {a}, 20));
  b.start_backward();
  b.result(b.fresh("g", {b.incoming("dy", 20), a}, 5));
  const auto problem = b.build();
  const auto plans = search_frontier(problem, RetentionPlan(problem));
  ASSERT_EQ(plans.size(), 1U);
  EXPECT_EQ(plans[0].simulation.peak_bytes, 10 + 20 + 20 + 5);
  PlanSearch search(problem, RetentionPlan(problem));
  EXPECT_EQ(search.smallest_peak_bytes(), 55);
  EXPECT_FALSE(search.fastest(54));
}

}  // namespace
}  // namespace aten_recompute
