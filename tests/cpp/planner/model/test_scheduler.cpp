// test_simulator.cpp has more schedules, each with the bytes that follow from it.
#include "planner/model/scheduler.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The backward reads b in slot 1 and a in slots 1 and 3.
struct Example {
  Example() {
    test::SmallProblemBuilder builder;
    a = builder.fresh("a", {builder.held("x", 100)}, 10);
    b = builder.fresh("b", {a}, 10);
    builder.result(builder.fresh("y", {b}, 10));
    builder.start_backward();
    const auto g1 = builder.fresh("g1", {builder.incoming("dy", 10), a, b}, 10);
    const auto g2 = builder.fresh("g2", {g1}, 10);
    builder.result(builder.fresh("g3", {g2, a}, 10));
    problem = builder.build();
  }

  int32_t a = 0, b = 0;
  Problem problem;
};

std::vector<std::string> names(const Problem& problem, const Schedule& schedule) {
  std::vector<std::string> names;
  for (const auto& step : schedule.steps)
    names.push_back(problem.node_names[step.node] + std::to_string(step.slot));
  return names;
}

TEST(Scheduler, StepsSayWhichSlotTheyServe) {
  const Example example;
  RetentionPlan plan(example.problem);
  plan.drop_always(example.a);
  plan.drop_always(example.b);
  Scheduler scheduler(example.problem);
  Schedule schedule;
  ASSERT_TRUE(scheduler.run(plan, schedule));
  EXPECT_THAT(names(example.problem, schedule),
              ElementsAre("a0", "b0", "y0", "a1", "b1", "g11", "g22", "a3", "g33"));
  EXPECT_TRUE(schedule.is_recomputed[example.a]);
  EXPECT_TRUE(schedule.is_recomputed[example.b]);
  EXPECT_EQ(scheduler.base_steps(), 6U);
}

TEST(Scheduler, GivesUpBeyondTheLimitOfBackwardSteps) {
  const Example example;
  RetentionPlan plan(example.problem);
  plan.drop_always(example.a);  // two backward steps beyond g1, g2 and g3
  Scheduler scheduler(example.problem);
  Schedule schedule;
  EXPECT_TRUE(scheduler.run(plan, schedule, 5));
  EXPECT_FALSE(scheduler.run(plan, schedule, 4));
  EXPECT_THAT(schedule.steps, IsEmpty());
  EXPECT_THAT(schedule.gaps, IsEmpty());
}

TEST(Scheduler, ARunDoesNotDependOnTheOneBefore) {
  const Example example;
  const RetentionPlan keep_all(example.problem);
  RetentionPlan drop_all(example.problem);
  drop_all.drop_always(example.a);
  drop_all.drop_always(example.b);
  Scheduler scheduler(example.problem);
  Schedule schedule;
  scheduler.run(drop_all, schedule);
  scheduler.run(drop_all, schedule, 1);
  scheduler.run(keep_all, schedule);
  EXPECT_THAT(names(example.problem, schedule), ElementsAre("a0", "b0", "y0", "g11", "g22", "g33"));
  EXPECT_EQ(schedule.gaps.size(), 3U);
  EXPECT_FALSE(schedule.is_recomputed[example.a]);
}

TEST(Scheduler, GapsAreRecordedForTrackedValuesOnly) {
  const Example example;
  RetentionPlan plan(example.problem);
  plan.drop(example.a, 1);
  plan.drop(example.b, 0);
  Scheduler scheduler(example.problem);
  scheduler.drops_only({example.a});
  Schedule schedule;
  ASSERT_TRUE(scheduler.run(plan, schedule));
  EXPECT_THAT(names(example.problem, schedule),
              ElementsAre("a0", "b0", "y0", "b1", "g11", "g22", "a3", "g33"))
      << "values that are not tracked may be dropped at the end of the forward";
  ASSERT_EQ(schedule.gaps.size(), 2U);
  EXPECT_EQ(schedule.gaps[0].value, example.a);
  EXPECT_FALSE(schedule.gaps[0].recomputed);
  EXPECT_EQ(schedule.gaps[1].from, 1);
  EXPECT_EQ(schedule.gaps[1].to, 3);
  EXPECT_TRUE(schedule.gaps[1].recomputed);
}

TEST(OutputBit, TheLastBitStandsForAllFurtherOutputs) {
  EXPECT_EQ(output_bit(0), 1U);
  EXPECT_EQ(output_bit(62), uint64_t{1} << 62);
  EXPECT_EQ(output_bit(63), uint64_t{1} << 63);
  EXPECT_EQ(output_bit(100), uint64_t{1} << 63);
}

}  // namespace
}  // namespace aten_recompute
