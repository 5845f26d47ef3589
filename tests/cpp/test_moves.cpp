#include "passes/plan/moves.h"

#include "tests/cpp/plan_testing.h"
#include "tests/cpp/testing.h"

namespace aten_recompute {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// `a` is read first in the backward and again at its end; between them lies a large gradient.
struct TwoReads {
  TwoReads() {
    test::ProblemBuilder b;
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
    problem = b.build();
  }

  Problem problem;
  int32_t a = -1;
};

TEST(Moves, WhatIsDroppedIsOfferedToBeKept) {
  const TwoReads graph;
  Simulator simulator(graph.problem);
  const Moves moves(graph.problem, simulator.droppable());
  Decisions decisions(graph.problem);
  decisions.drop(graph.a, 1);
  const auto peak = simulator.run(decisions).peak_bytes;
  const auto offered = moves.offered(simulator, decisions, peak);
  ASSERT_THAT(offered, SizeIs(1));
  EXPECT_EQ(offered[0].value, graph.a);
  EXPECT_EQ(offered[0].slot, 1);
  EXPECT_EQ(offered[0].until, 4);
  EXPECT_FALSE(offered[0].drop);
}

TEST(Moves, WithoutRoomBetweenItIsNot) {
  const TwoReads graph;
  Simulator simulator(graph.problem);
  const Moves moves(graph.problem, simulator.droppable());
  Decisions decisions(graph.problem);
  decisions.drop(graph.a, 1);
  const auto peak = simulator.run(decisions).peak_bytes;
  EXPECT_THAT(moves.offered_keeps_with_room(simulator, decisions, peak + 99), IsEmpty());
  EXPECT_THAT(moves.offered_keeps_with_room(simulator, decisions, peak + 100), SizeIs(1));
  // Which is what the simulator says of it.
  decisions.set(graph.a, 1, false);
  EXPECT_EQ(simulator.run(decisions).peak_bytes, peak + 100);
}

}  // namespace
}  // namespace aten_recompute
