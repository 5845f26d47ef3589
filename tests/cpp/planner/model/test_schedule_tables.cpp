#include "planner/model/schedule_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The forward makes a, a view of it, something that runs once, a value without memory and an
// output; the backward makes a view of a in slot 1 and reads it in slot 3.
struct TwoBackwardSteps {
  TwoBackwardSteps() {
    test::SmallProblemBuilder b;
    x = b.held("x", 100);
    a = b.fresh("a", {x}, 10);
    view = b.view("view", {a});
    once = b.fresh("once", {view}, 10);
    b.once();
    empty = b.fresh("empty", {once}, 0);
    y = b.fresh("y", {empty}, 10);
    b.result(y);
    b.start_backward();
    const auto dy = b.incoming("dy", 10);
    backward_view = b.view("backward_view", {a});
    g = b.fresh("g", {dy, y}, 10);
    b.overwrites({dy});
    h = b.fresh("h", {g, backward_view}, 10);
    b.overwrites({g});
    b.result(h);
    problem = b.build();
  }

  int32_t x = 0, a = 0, view = 0, once = 0, empty = 0, y = 0;
  int32_t backward_view = 0, g = 0, h = 0;
  Problem problem;
};

TEST(ScheduleTables, RecomputableValuesAreNoViewsRunMoreThanOnceAndAreNotHeld) {
  const TwoBackwardSteps example;
  const ScheduleTables tables(example.problem);
  EXPECT_THAT(tables.recomputable, ElementsAre(example.a, example.empty));
  EXPECT_THAT(tables.droppable, ElementsAre(example.a)) << "the other takes no memory";
}

TEST(ScheduleTables, TheBackwardFindsForwardValuesButNotViews) {
  const TwoBackwardSteps example;
  const auto available = ScheduleTables(example.problem).available_at_start;
  EXPECT_EQ(available[example.x], kFromForward);
  EXPECT_EQ(available[example.a], kFromForward);
  EXPECT_EQ(available[example.view], kAbsent);
  EXPECT_EQ(available[example.g], kAbsent);
}

TEST(ScheduleTables, ABackwardViewSpansTheSlotsFromItsNodeToItsLastUse) {
  const TwoBackwardSteps example;
  const ScheduleTables tables(example.problem);
  EXPECT_THAT(tables.view_spans[example.a], ElementsAre(1, 3));
  EXPECT_THAT(tables.view_spans[example.y], IsEmpty());
  EXPECT_THAT(tables.views[example.a], ElementsAre(example.view));
}

TEST(ScheduleTables, OnlyMemoryOfTheBackwardMayAlwaysBeOverwritten) {
  const TwoBackwardSteps example;
  const ScheduleTables tables(example.problem);
  EXPECT_TRUE(tables.may_overwrite_forward[example.problem.producer[example.g]]);
  EXPECT_FALSE(tables.may_overwrite_forward[example.problem.producer[example.h]]);
}

TEST(TrackedValues, LeaveOutWhatCannotBeRecomputed) {
  const TwoBackwardSteps example;
  const ScheduleTables tables(example.problem);
  const TrackedValues tracked(example.problem, tables, {example.a, example.once});
  EXPECT_TRUE(tracked.is_tracked[example.a]);
  EXPECT_FALSE(tracked.is_tracked[example.once]);
  EXPECT_EQ(tracked.first_base[example.view], example.a);
  EXPECT_EQ(tracked.first_base[example.once], -1);
  // The caller holds y, and dy is given.
  EXPECT_THAT(tracked.needs[example.problem.producer[example.g]], IsEmpty());
  EXPECT_THAT(tracked.needs[example.problem.producer[example.h]],
              ElementsAre(example.backward_view));
}

}  // namespace
}  // namespace aten_recompute
