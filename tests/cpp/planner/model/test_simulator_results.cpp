// Schedules and byte counts of problems that are small enough to be worked out by hand: results
// that stay, nodes with several outputs, and alternatives. test_simulator.cpp has the rest.
#include "planner/model/simulator.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using test::listing;
using test::SmallProblemBuilder;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The first gradient waits for the node that reads it while the second is made; both stay.
TEST(Simulator, ResultsStayToTheEnd) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  b.result(b.fresh("y", {x}, 10));
  b.start_backward();
  const auto dy = b.incoming("dy", 10);
  const auto g1 = b.fresh("g1", {dy}, 3);
  b.result(g1);
  const auto t = b.fresh("t", {dy}, 100);
  b.result(b.fresh("g2", {t}, 5));
  const auto last = b.fresh("last", {x}, 2);
  b.result(last);
  const auto problem = b.build();
  Simulator simulator(problem);
  simulator.run(RetentionPlan(problem));
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10 + 10,            // y, then dy
                                                  10 + 10 + 3,        // y dy g1
                                                  10 + 10 + 3 + 100,  // y dy g1 t
                                                  10 + 3 + 100 + 5,   // y g1 t g2
                                                  10 + 3 + 5 + 2));   // y g1 g2 last
}

// The caller frees y and z once the loss has read them. z stays until the backward has read it.
TEST(Simulator, ResultsThatAreFreedBeforeTheBackwardStayUntilTheLossHasRun) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto y = b.fresh("y", {x}, 10);
  const auto z = b.fresh("z", {x}, 20);
  b.result(y);
  b.result(z);
  b.start_backward();
  const auto dy = b.incoming("dy", 10);
  const auto g1 = b.fresh("g1", {dy, z}, 3);
  b.result(g1);
  b.result(b.fresh("g2", {g1}, 5));
  auto problem = b.build();
  problem.freed_before_backward = {y, z};
  Simulator simulator(problem);
  const auto figures = simulator.run(RetentionPlan(problem));
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 10 + 20 + 10, 20 + 10 + 3, 3 + 5));
  EXPECT_EQ(figures.peak_bytes, 40);
  EXPECT_EQ(figures.saved_bytes, 30);

  problem.freed_before_backward = {};
  Simulator without(problem);
  without.run(RetentionPlan(problem));
  EXPECT_THAT(without.step_bytes(), ElementsAre(10, 10 + 20 + 10, 30 + 10 + 3, 30 + 3 + 5));
}

TEST(Simulator, IncomingGradientsCountFromTheStartOfTheBackward) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  b.result(b.fresh("y", {x}, 10));
  b.result(b.fresh("z", {x}, 20));
  b.start_backward();
  const auto dy = b.incoming("dy", 10);
  const auto dz = b.incoming("dz", 20);
  const auto unread = b.incoming("unread", 500);
  const auto g1 = b.fresh("g1", {dy}, 1);
  b.result(b.fresh("g2", {g1, dz}, 2));
  const auto problem = b.build();
  Simulator simulator(problem);
  const auto figures = simulator.run(RetentionPlan(problem));
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 30 + 10 + 20,   // y z, then dy dz
                                                  30 + 10 + 20 + 1,   // y z dy dz g1
                                                  30 + 20 + 1 + 2));  // y z dz g1 g2
  EXPECT_EQ(figures.saved_bytes, 30);
  EXPECT_FALSE(simulator.captured()[unread]);
}

TEST(Simulator, AnOutputThatNothingReadsCountsWhileItsNodeRuns) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto pair = b.fresh({x}, {{"p", 4}, {"q", 8}});
  b.result(b.fresh("y", {pair[0]}, 10));
  b.start_backward();
  b.result(b.fresh("g", {b.incoming("dy", 10)}, 1));
  const auto problem = b.build();
  Simulator simulator(problem);
  simulator.run(RetentionPlan(problem));
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(4 + 8,          // p q
                                                  10 + 10,        // p y, then y dy
                                                  10 + 10 + 1));  // y dy g
}

// p is kept and q is recomputed; the second p is freed as soon as the node has run.
TEST(Simulator, ASecondRunTakesOnlyTheOutputThatWasDropped) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto pair = b.fresh({x}, {{"p", 4}, {"q", 8}});
  const auto p = pair[0], q = pair[1];
  b.result(b.fresh("y", {p, q}, 10));
  b.start_backward();
  const auto dy = b.incoming("dy", 10);
  const auto g1 = b.fresh("g1", {dy, p}, 3);
  b.result(b.fresh("g2", {g1, p, q}, 5));
  const auto problem = b.build();
  RetentionPlan plan(problem);
  plan.drop(q, 0);
  Simulator simulator(problem);
  const auto figures = simulator.run(plan);
  EXPECT_EQ(listing(simulator), "p y | g1 p g2");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(4 + 8,                 // p q
                                                  4 + 10 + 10,           // p q y, then p y dy
                                                  10 + 10 + 4 + 3,       // y dy p g1
                                                  10 + 3 + 4 + 8 + 4,    // y g1 p q p'
                                                  10 + 3 + 4 + 8 + 5));  // y g1 p q g2
  EXPECT_EQ(figures.saved_bytes, 4 + 10);
  EXPECT_EQ(simulator.steps()[3].output_mask, 2U);
}

// q comes with p when p is recomputed, although nothing has asked for it.
TEST(Simulator, AnOutputRecomputedBesideAnotherStaysUntilItIsDropped) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto pair = b.fresh({x}, {{"p", 4}, {"q", 8}});
  b.result(b.fresh("y", {pair[0], pair[1]}, 10));
  b.start_backward();
  const auto dy = b.incoming("dy", 10);
  const auto g1 = b.fresh("g1", {dy, pair[0]}, 3);
  b.result(b.fresh("g2", {g1, pair[1]}, 5));
  const auto problem = b.build();
  RetentionPlan plan(problem);
  plan.drop(pair[0], 0);
  plan.drop(pair[1], 0);
  Simulator simulator(problem);
  simulator.run(plan);
  EXPECT_EQ(listing(simulator), "p y | p g1 g2");
  plan.drop(pair[1], 1);
  simulator.run(plan);
  EXPECT_EQ(listing(simulator), "p y | p g1 p g2");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(12, 22,            //
                                                  10 + 10 + 4 + 8,   // y dy p q
                                                  10 + 10 + 4 + 3,   // y dy p g1
                                                  10 + 3 + 4 + 8,    // y g1 p q
                                                  10 + 3 + 8 + 5));  // y g1 q g2
}

TEST(Simulator, OnlyRecomputableValuesThatTakeMemoryAreDroppable) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto a = b.fresh("a", {x}, 10);
  const auto empty = b.fresh("empty", {a}, 0);
  const auto view = b.view("view", {a});
  const auto once = b.fresh("once", {empty, view}, 10);
  b.once();
  const auto c = b.fresh("c", {once}, 10);
  const auto mask = b.fresh("mask", {c}, 1);
  b.optional();
  const auto last = b.fresh("last", {c}, 10);
  b.start_backward();
  const auto dy = b.incoming("dy", 10);
  const auto g1 = b.fresh("g1", {dy, once, mask}, 10);
  b.result(b.fresh("g2", {g1, last, once, mask}, 10));
  const auto problem = b.build();
  Simulator simulator(problem);
  EXPECT_THAT(simulator.droppable(), ElementsAre(a, c, last));
  // Decisions about other values have no effect.
  RetentionPlan plan(problem);
  for (auto value : {x, view, once, mask, dy, g1})
    plan.drop_always(value);
  const auto figures = simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a empty view once c mask last | g1 g2");
  // The optional mask is not part of the base seconds.
  EXPECT_DOUBLE_EQ(figures.recompute_seconds, 1.0);
}

// r = relu(h) may be packed into a mask, from which dr and r itself can be computed.
struct Packing {
  SmallProblemBuilder b;
  int32_t h = b.fresh("h", {b.held("x", 1000)}, 32);
  int32_t r = b.fresh("r", {h}, 32);
  int32_t mask = b.fresh("mask", {r}, 1);
  int32_t y = 0, dr = 0;
  int32_t dr_from_mask = 0, r_from_mask = 0;  // nodes
  Problem problem;

  Packing() {
    b.optional();
    b.seconds(0.25);
    y = b.fresh("y", {r}, 20);
    b.result(y);
    b.start_backward();
    const auto dy = b.incoming("dy", 20);
    dr = b.fresh("dr", {dy, r}, 32);
    b.result(dr);
    dr_from_mask = b.alternative(dr, {dy, mask}, 1.5);
    r_from_mask = b.alternative(r, {mask}, 0.5);
    problem = b.build();
  }
};

TEST(Simulator, AnOptionalNodeRunsOnlyIfItIsRead) {
  const Packing packing;
  Simulator simulator(packing.problem);
  const auto figures = simulator.run(RetentionPlan(packing.problem));
  EXPECT_EQ(listing(simulator), "h r y | dr");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(32, 32 + 32,          // h r
                                                  32 + 20 + 20,         // r y, then dy
                                                  20 + 20 + 32 + 32));  // y dy r dr
  EXPECT_EQ(figures.saved_bytes, 52);
  EXPECT_EQ(figures.recompute_seconds, 0.0);
}

TEST(Simulator, AnAlternativeToABackwardNodeReadsWhatIsOptional) {
  const Packing packing;
  RetentionPlan plan(packing.problem);
  plan.choose(packing.problem.producer[packing.dr], packing.dr_from_mask);
  Simulator simulator(packing.problem);
  const auto figures = simulator.run(plan);
  EXPECT_EQ(listing(simulator), "h r mask y | dr_instead");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(32, 32 + 32,         // h r
                                                  32 + 1,              // r mask
                                                  32 + 1 + 20,         // r mask y
                                                  20 + 20 + 1 + 32));  // y dy mask dr
  EXPECT_EQ(figures.saved_bytes, 1 + 20);
  EXPECT_DOUBLE_EQ(figures.recompute_seconds, 0.25 + 0.5);  // the packing, and 1.5 instead of 1
  EXPECT_FALSE(simulator.captured()[packing.r]);
  EXPECT_TRUE(simulator.captured()[packing.mask]);
}

TEST(Simulator, AnAlternativeToAForwardNodeRunsInTheBackwardOnly) {
  const Packing packing;
  RetentionPlan plan(packing.problem);
  plan.choose(packing.problem.producer[packing.r], packing.r_from_mask);
  Simulator simulator(packing.problem);
  simulator.run(plan);
  EXPECT_EQ(listing(simulator), "h r y | dr");  // r is kept: nothing to run again
  plan.drop(packing.r, 0);
  const auto figures = simulator.run(plan);
  EXPECT_EQ(listing(simulator), "h r mask y | r_instead dr");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(32, 64, 33, 53,       //
                                                  20 + 20 + 1 + 32,     // y dy mask r
                                                  20 + 20 + 32 + 32));  // y dy r dr
  EXPECT_DOUBLE_EQ(figures.recompute_seconds, 0.25 + 0.5);
}

// The alternative makes p only, so q needs a run of the node itself.
TEST(Simulator, OutputsThatAnAlternativeDoesNotMakeComeFromTheNodeItself) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto pair = b.fresh({x}, {{"p", 4}, {"q", 8}});
  b.result(b.fresh("y", {pair[0], pair[1]}, 10));
  b.start_backward();
  const auto dy = b.incoming("dy", 10);
  const auto g1 = b.fresh("g1", {dy, pair[0]}, 3);
  b.result(b.fresh("g2", {g1, pair[1]}, 5));
  const auto alternative = b.alternative(pair[0], {x}, 0.5);
  const auto problem = b.build();
  RetentionPlan plan(problem);
  plan.choose(problem.producer[pair[0]], alternative);
  plan.drop(pair[0], 0);
  plan.drop(pair[1], 0);
  Simulator simulator(problem);
  const auto figures = simulator.run(plan);
  EXPECT_EQ(listing(simulator), "p y | p_instead g1 p g2");
  EXPECT_EQ(simulator.steps()[4].output_mask, 2U);
  EXPECT_DOUBLE_EQ(figures.recompute_seconds, 1.5);
}

// The caller holds y, so dropping it would free nothing, and recomputing it would need a copy.
TEST(Simulator, ResultsThatTheBackwardReadsAreNeitherFreedNorRecomputed) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 1000)}, 10);
  const auto y = b.fresh("y", {a}, 40);
  b.result(y);
  b.start_backward();
  const auto dy = b.incoming("dy", 40);
  b.result(b.fresh("g", {dy, y}, 5));
  const auto problem = b.build();
  RetentionPlan plan(problem);
  plan.drop_always(a);
  plan.drop_always(y);
  Simulator simulator(problem);
  const auto figures = simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a y | g");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 40 + 40, 40 + 40 + 5));
  EXPECT_EQ(figures.saved_bytes, 40);
}

// y is a view of h, so the caller holds the memory of h.
TEST(Simulator, TheBaseValueOfAResultIsHeldToo) {
  SmallProblemBuilder b;
  const auto h = b.fresh("h", {b.held("x", 1000)}, 40);
  b.result(b.view("y", {h}));
  b.start_backward();
  const auto dy = b.incoming("dy", 40);
  b.result(b.fresh("g", {dy, h}, 5));
  const auto problem = b.build();
  RetentionPlan plan(problem);
  plan.drop_always(h);
  Simulator simulator(problem);
  simulator.run(plan);
  EXPECT_EQ(listing(simulator), "h y | g");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(40, 40 + 40, 40 + 40 + 5));
  EXPECT_THAT(simulator.droppable(), IsEmpty());
}

// The caller holds a. The backward recomputes a to compute b, so both copies are alive at once.
TEST(Simulator, ARecomputedOutputIsASecondCopy) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 1000)}, 10);
  const auto bb = b.fresh("b", {a}, 20);
  b.result(a);
  b.result(b.fresh("y", {bb}, 40));
  b.start_backward();
  const auto dy = b.incoming("dy", 40);
  b.result(b.fresh("g", {dy, bb}, 5));
  const auto problem = b.build();
  RetentionPlan plan(problem);
  plan.drop_always(a);
  plan.drop_always(bb);
  Simulator simulator(problem);
  const auto figures = simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a b y | a b g");
  // The caller holds a and y, 50 bytes, all along, and dy, 40 bytes, during the backward.
  EXPECT_THAT(simulator.step_bytes(),
              ElementsAre(10, 10 + 20, 50 + 40, 50 + 40 + 10, 50 + 40 + 10 + 20, 50 + 40 + 20 + 5));
  EXPECT_EQ(figures.saved_bytes, 50);
  EXPECT_FALSE(simulator.captured()[a]);
}

// t, a view of a that the backward makes, holds a until g3. Dropping a earlier would free nothing.
TEST(Simulator, ABackwardViewHoldsItsBaseValue) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 1000)}, 10);
  b.result(b.fresh("y", {a}, 20));
  b.start_backward();
  const auto dy = b.incoming("dy", 20);
  const auto t = b.view("t", {a});
  const auto g1 = b.fresh("g1", {dy}, 20);
  const auto g2 = b.fresh("g2", {g1, a}, 6);
  const auto g3 = b.fresh("g3", {g2, t}, 5);
  const auto g4 = b.fresh("g4", {g3}, 7);
  b.result(b.fresh("g5", {g4, a}, 3));
  const auto problem = b.build();
  RetentionPlan plan(problem);
  plan.drop(a, 1);
  Simulator simulator(problem);
  simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a y | t g1 g2 g3 g4 g5");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 10 + 20 + 20,   // a, a y, then dy
                                                  20 + 20 + 10,       // y dy a
                                                  20 + 20 + 10 + 20,  // y dy a g1
                                                  20 + 10 + 20 + 6,   // y a g1 g2
                                                  20 + 10 + 6 + 5,    // y a g2 g3
                                                  20 + 10 + 5 + 7,    // y a g3 g4
                                                  20 + 10 + 7 + 3));  // y a g4 g5
  plan.drop(a, 3);
  simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a y | t g1 g2 g3 g4 g5");
  // The last use of t is in slot 4, so a can be dropped there.
  plan.drop(a, 4);
  simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a y | t g1 g2 g3 g4 a g5");
}

}  // namespace
}  // namespace aten_recompute
