#include "planner/search/moves.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// `a` is read first in the backward and again at its end; between them lies a large gradient. It is
// let go after the first.
struct TwoReads {
  TwoReads() : problem(make()), simulator(problem), decisions(problem) {
    decisions.drop(a, 1);
    peak = simulator.run(decisions).peak_bytes;
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
  RetentionPlan decisions;
  int64_t peak = 0;
};

TEST(Moves, WhatIsDroppedIsOfferedToBeKept) {
  TwoReads graph;
  const auto candidates = graph.moves.candidates(graph.simulator.last_run(), graph.peak);
  ASSERT_THAT(candidates, SizeIs(1));
  EXPECT_EQ(candidates[0].value, graph.a);
  EXPECT_EQ(candidates[0].slot, 1);
  EXPECT_EQ(candidates[0].until, 4);
  EXPECT_FALSE(candidates[0].drop);
}

TEST(Moves, WithoutRoomBetweenItIsNot) {
  TwoReads graph;
  const auto keeps = [&](int64_t limit_bytes) {
    return graph.moves.keeps_with_room(graph.simulator.last_run(), limit_bytes);
  };
  EXPECT_THAT(keeps(graph.peak + 99), IsEmpty());
  EXPECT_THAT(keeps(graph.peak + 100), SizeIs(1));
  // Which is what the simulator says of it.
  graph.decisions.set(graph.a, 1, false);
  EXPECT_EQ(graph.simulator.run(graph.decisions).peak_bytes, graph.peak + 100);
}

}  // namespace
}  // namespace aten_recompute
