#include "planner/search/moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// The backward reads `a` at its beginning and at its end, with a large gradient in between. The
// plan drops `a` after the first read.
struct TwoReads {
  TwoReads() : problem(make()), simulator(problem), plan(problem) {
    plan.drop(a, 1);
    peak = simulator.run(plan).peak_bytes;
  }

  Problem make() {
    test::SmallProblemBuilder b;
    const auto x = b.held("x", 100);
    a = b.fresh("a", {x}, 100);
    const auto y = b.fresh("y", {a}, 1);
    b.result(y);
    b.start_backward();
    const auto dy = b.incoming("dy", 1);
    const auto first = b.fresh("first", {dy, a}, 1);
    const auto large = b.fresh("large", {first}, 500);
    const auto small = b.fresh("small", {large}, 1);
    b.result(b.fresh("last", {small, a}, 1));
    return b.build();
  }

  int32_t a = -1;
  Problem problem;
  Simulator simulator;
  Moves moves{problem, simulator.droppable()};
  RetentionPlan plan;
  int64_t peak = 0;
};

TEST(Moves, ADroppedValueIsACandidateToKeep) {
  TwoReads graph;
  const auto candidates = graph.moves.candidates(graph.simulator.last_run(), graph.peak);
  ASSERT_THAT(candidates, SizeIs(1));
  EXPECT_EQ(candidates[0].value, graph.a);
  EXPECT_EQ(candidates[0].slot, 1);
  EXPECT_EQ(candidates[0].until, 4);
  EXPECT_FALSE(candidates[0].drop);
}

TEST(Moves, KeepsNeedRoomInTheSlotsBetween) {
  TwoReads graph;
  const auto keeps = [&](int64_t limit_bytes) {
    return graph.moves.keeps_with_room(graph.simulator.last_run(), limit_bytes);
  };
  EXPECT_THAT(keeps(graph.peak + 99), IsEmpty());
  EXPECT_THAT(keeps(graph.peak + 100), SizeIs(1));
  // The simulator agrees.
  graph.plan.set(graph.a, 1, false);
  EXPECT_EQ(graph.simulator.run(graph.plan).peak_bytes, graph.peak + 100);
}

}  // namespace
}  // namespace aten_recompute
