#include "planner/search/local_search.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

constexpr int64_t kSteps = 100'000;

// A chain of values of 100 bytes, each of which the backward reads once. The even ones take 1
// second to recompute, the odd ones 10.
Problem chain_with_costs(int length) {
  test::SmallProblemBuilder b;
  auto value = b.held("x", 1000);
  std::vector<int32_t> values;
  for (int i = 0; i < length; ++i) {
    value = b.fresh("v" + std::to_string(i), {value}, 100);
    b.seconds(i % 2 == 0 ? 1.0 : 10.0);
    values.push_back(value);
  }
  b.result(b.fresh("y", {value}, 1));
  b.start_backward();
  auto gradient = b.incoming("dy", 1);
  for (int i = length; i-- > 0;)
    gradient = b.fresh("g" + std::to_string(i), {gradient, values[i]}, 1);
  b.result(gradient);
  return b.build();
}

struct LocalSearchTest : ::testing::Test {
  Plan start(bool dropped) {
    Plan plan{RetentionPlan(problem), {}};
    for (auto value : simulator.droppable())
      plan.retention.set_always(value, dropped);
    plan.simulation = simulator.run(plan.retention);
    return plan;
  }

  // The costs of the plan are those that its simulation has.
  void expect_consistent(const Plan& plan, int64_t limit_bytes) {
    const auto simulation = Simulator(problem).run(plan.retention, limit_bytes);
    EXPECT_EQ(simulation.peak_bytes, plan.simulation.peak_bytes);
    EXPECT_EQ(simulation.recompute_seconds, plan.simulation.recompute_seconds);
    EXPECT_EQ(simulation.excess, plan.simulation.excess);
  }

  Problem problem = chain_with_costs(12);
  Simulator simulator{problem};
  Moves moves{problem, simulator.droppable()};
  ParetoArchive archive{simulator.run(RetentionPlan(problem)).peak_bytes};
  LocalSearch search{simulator, moves, archive, 1};
};

TEST_F(LocalSearchTest, ReducesUntilNothingExceedsTheLimit) {
  auto plan = start(/*dropped=*/false);
  ASSERT_GT(plan.simulation.peak_bytes, 1000);
  search.reduce(plan, 1000, kSteps);
  EXPECT_LE(plan.simulation.peak_bytes, 1000);
  EXPECT_EQ(plan.simulation.excess, 0.0);
  expect_consistent(plan, 1000);
}

// Three cheap values are enough: 12 x 100 bytes, of which 300 have to go.
TEST_F(LocalSearchTest, ReducingOneByOneDropsTheCheapestValues) {
  auto plan = start(/*dropped=*/false);
  search.reduce_one_by_one(plan, 1000, kSteps);
  EXPECT_LE(plan.simulation.peak_bytes, 1000);
  EXPECT_LE(plan.simulation.recompute_seconds, 3.0);
}

TEST_F(LocalSearchTest, StopsWhenItsStepsAreUsedUp) {
  auto plan = start(/*dropped=*/false);
  search.reduce_one_by_one(plan, 500, 1);
  EXPECT_GT(plan.simulation.excess, 0.0);
  EXPECT_LT(search.num_steps(), 10 * simulator.base_steps());
}

TEST_F(LocalSearchTest, BuildsUpToTheLimitFromDroppingEverything) {
  auto plan = start(/*dropped=*/true);
  const auto before = plan.simulation;
  search.build_up(plan, 1000, kSteps);
  EXPECT_LE(plan.simulation.peak_bytes, 1000);
  EXPECT_LT(plan.simulation.recompute_seconds, before.recompute_seconds / 2);
  expect_consistent(plan, 1000);
}

TEST_F(LocalSearchTest, DoesNotBuildUponAPlanThatExceedsTheLimit) {
  auto plan = start(/*dropped=*/true);
  const auto before = plan.retention;
  search.build_up(plan, plan.simulation.peak_bytes - 1, kSteps);
  EXPECT_TRUE(plan.retention == before);
}

TEST_F(LocalSearchTest, RelaxingKeepsWhatThereIsRoomFor) {
  auto plan = start(/*dropped=*/false);
  search.reduce(plan, 600, kSteps);
  const auto before = plan.simulation.recompute_seconds;
  search.relax(plan, 900, kSteps);
  EXPECT_LE(plan.simulation.peak_bytes, 900);
  EXPECT_LT(plan.simulation.recompute_seconds, before);
  expect_consistent(plan, 900);
}

TEST_F(LocalSearchTest, CanonicalizingKeepsTheSchedule) {
  auto plan = start(/*dropped=*/false);
  search.reduce(plan, 700, kSteps);
  const auto before = plan.simulation;
  search.canonicalize(plan);
  expect_consistent(plan, 700);
  EXPECT_EQ(before.peak_bytes, plan.simulation.peak_bytes);
  // The value is read in the last slot only, and would be dropped again after each earlier use.
  EXPECT_TRUE(plan.retention.dropped(moves.droppable()[0], problem.num_backward()));
}

TEST_F(LocalSearchTest, AnnealingFindsFasterPlansAndIsDeterministic) {
  auto plan = start(/*dropped=*/true);
  const auto limit = plan.simulation.peak_bytes + 300;
  archive.offer(plan.retention, plan.simulation);
  const auto annealed = [&](uint64_t seed) {
    auto found = archive;
    auto own = simulator;
    LocalSearch(own, moves, found, seed).anneal(plan, limit, kSteps);
    return *found.fastest(limit);
  };
  const auto found = annealed(7);
  EXPECT_LE(found.simulation.peak_bytes, limit);
  EXPECT_LT(found.simulation.recompute_seconds, plan.simulation.recompute_seconds);
  EXPECT_TRUE(annealed(7).retention == found.retention);
}

TEST_F(LocalSearchTest, OffersEveryPlanThatItSimulatesToTheArchive) {
  const auto plan = start(/*dropped=*/true);
  const auto simulation = search.simulate(plan.retention, 1000);
  ASSERT_NE(archive.fastest(simulation.peak_bytes), nullptr);
  EXPECT_TRUE(archive.fastest(simulation.peak_bytes)->retention == plan.retention);
}

TEST(Random, EqualSeedsDrawEqualNumbers) {
  Random random(1);
  std::vector<size_t> drawn;
  for (int i = 0; i < 4; ++i)
    drawn.push_back(random.below(1000));
  Random again(1);
  for (auto number : drawn)
    EXPECT_EQ(again.below(1000), number);
  for (int i = 0; i < 1000; ++i) {
    const auto unit = random.unit();
    EXPECT_GE(unit, 0.0);
    EXPECT_LT(unit, 1.0);
  }
}

}  // namespace
}  // namespace aten_recompute
