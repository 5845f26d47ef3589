// Schedules and byte counts of problems that are small enough to be worked out by hand. A comment
// beside the expected bytes of a step lists the values alive. The last step of the forward also
// counts what is alive after it: saved values and the incoming gradient.
#include "planner/model/simulator.h"

#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {

// For ElementsAre.
static bool operator==(const Gap& a, const Gap& b) {
  return std::tie(a.value, a.from, a.to, a.recomputed) ==
         std::tie(b.value, b.from, b.to, b.recomputed);
}

static void PrintTo(const Gap& gap, std::ostream* out) {
  *out << "{" << gap.value << ", " << gap.from << ", " << gap.to << ", " << gap.recomputed << "}";
}

namespace {

using test::listing;
using test::SmallProblemBuilder;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// y = h(g(f(x))), with a gradient that reads b, then a.
struct Chain {
  SmallProblemBuilder b;
  int32_t x = b.held("x", 1000);
  int32_t a = b.fresh("a", {x}, 10);
  int32_t bb = b.fresh("b", {a}, 20);
  int32_t y = b.fresh("y", {bb}, 40);
  int32_t dy = 0, gb = 0, ga = 0, gx = 0;
  Problem problem;

  Chain() {
    b.result(y);
    b.start_backward();
    dy = b.incoming("dy", 40);
    gb = b.fresh("gb", {dy, bb}, 20);
    ga = b.fresh("ga", {gb, a}, 10);
    gx = b.fresh("gx", {ga}, 5);
    b.result(gx);
    problem = b.build();
  }
};

TEST(Simulator, AKeptValueIsAliveFromItsNodeToItsLastRead) {
  const Chain chain;
  Simulator simulator(chain.problem);
  const auto figures = simulator.run(RetentionPlan(chain.problem));
  EXPECT_EQ(listing(simulator), "a b y | gb ga gx");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10,                      // a
                                                  10 + 20,                 // a b
                                                  10 + 20 + 40 + 40,       // a b y, then dy
                                                  10 + 20 + 40 + 40 + 20,  // a b y dy gb
                                                  10 + 40 + 20 + 10,       // a y gb ga
                                                  40 + 10 + 5));           // y ga gx
  EXPECT_EQ(figures.peak_bytes, 130);
  EXPECT_EQ(figures.peak_step, 3);
  EXPECT_EQ(figures.forward_peak_bytes, 110);
  EXPECT_EQ(figures.saved_bytes, 70);  // dy comes only afterward
  EXPECT_EQ(figures.recompute_seconds, 0.0);
  EXPECT_EQ(figures.excess, 0.0);
  EXPECT_THAT(simulator.gaps(), ElementsAre(Gap{chain.bb, 0, 1, false}, Gap{chain.a, 0, 2, false}));
  EXPECT_TRUE(simulator.captured()[chain.a]);
  EXPECT_TRUE(simulator.captured()[chain.bb]);
}

TEST(Simulator, AValueDroppedAtTheEndOfTheForwardIsRecomputedOnce) {
  const Chain chain;
  RetentionPlan plan(chain.problem);
  plan.drop(chain.a, 0);
  plan.drop(chain.bb, 0);
  Simulator simulator(chain.problem);
  const auto figures = simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a b y | a b gb ga gx");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10,                      // a
                                                  10 + 20,                 // a b
                                                  40 + 40,                 // b y, then y dy
                                                  40 + 40 + 10,            // y dy a
                                                  40 + 40 + 10 + 20,       // y dy a b
                                                  40 + 40 + 10 + 20 + 20,  // y dy a b gb
                                                  40 + 10 + 20 + 10,       // y a gb ga
                                                  40 + 10 + 5));           // y ga gx
  EXPECT_EQ(figures.peak_bytes, 130);
  EXPECT_EQ(figures.peak_step, 5);
  EXPECT_EQ(figures.forward_peak_bytes, 80);
  EXPECT_EQ(figures.saved_bytes, 40);
  EXPECT_DOUBLE_EQ(figures.recompute_seconds, 2.0);
  EXPECT_THAT(simulator.gaps(), ElementsAre(Gap{chain.bb, 0, 1, true}, Gap{chain.a, 0, 1, true},
                                            Gap{chain.a, 1, 2, false}));
  EXPECT_FALSE(simulator.captured()[chain.a]);
  EXPECT_FALSE(simulator.captured()[chain.bb]);
}

TEST(Simulator, AValueDroppedBetweenTwoUsesIsRecomputedTwice) {
  const Chain chain;
  RetentionPlan plan(chain.problem);
  plan.drop_always(chain.a);
  plan.drop_always(chain.bb);
  Simulator simulator(chain.problem);
  const auto figures = simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a b y | a b gb a ga gx");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 30, 80,         // as before
                                                  40 + 40 + 10,       // y dy a
                                                  40 + 40 + 10 + 20,  // y dy a b
                                                  40 + 40 + 20 + 20,  // y dy b gb
                                                  40 + 20 + 10,       // y gb a
                                                  40 + 20 + 10 + 10,  // y gb a ga
                                                  40 + 10 + 5));      // y ga gx
  EXPECT_EQ(figures.peak_bytes, 120);
  EXPECT_DOUBLE_EQ(figures.recompute_seconds, 3.0);
  EXPECT_THAT(simulator.gaps(), ElementsAre(Gap{chain.bb, 0, 1, true}, Gap{chain.a, 0, 1, true},
                                            Gap{chain.a, 1, 2, true}));
}

TEST(Simulator, AValueKeptFromTheForwardCanBeDroppedInTheBackward) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 1000)}, 10);
  b.result(b.fresh("y", {a}, 40));
  b.start_backward();
  const auto dy = b.incoming("dy", 40);
  const auto g1 = b.fresh("g1", {dy, a}, 3);
  const auto g2 = b.fresh("g2", {g1}, 50);
  b.result(b.fresh("g3", {g2, a}, 4));
  const auto problem = b.build();
  RetentionPlan plan(problem);
  plan.drop(a, 1);
  Simulator simulator(problem);
  const auto figures = simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a y | g1 g2 a g3");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 10 + 40 + 40,    // a, a y, then dy
                                                  10 + 40 + 40 + 3,    // a y dy g1
                                                  40 + 3 + 50,         // y g1 g2
                                                  40 + 50 + 10,        // y g2 a
                                                  40 + 50 + 10 + 4));  // y g2 a g3
  EXPECT_EQ(figures.saved_bytes, 50);
  EXPECT_DOUBLE_EQ(figures.recompute_seconds, 1.0);
  // A drop in a slot that does not use the value has no effect.
  plan.keep(a, 1);
  plan.drop(a, 2);
  simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a y | g1 g2 g3");
}

// The bytes of the loss are added to what is alive between forward and backward.
TEST(Simulator, TheLossCountsBetweenForwardAndBackward) {
  Chain chain;
  chain.problem.loss_bytes = 25;
  Simulator simulator(chain.problem);
  const auto figures = simulator.run(RetentionPlan(chain.problem));
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 30, 70 + 40 + 25, 130, 80, 55));
  EXPECT_EQ(figures.peak_bytes, 135);
  EXPECT_EQ(figures.peak_step, 2);
  EXPECT_EQ(figures.saved_bytes, 70);
}

// Without them: 10 30 110 | 130 80 55, where 70 bytes wait for the backward and 45 remain after it.
TEST(Simulator, OtherCallsHoldWhatThisOneKeeps) {
  Chain chain;
  chain.problem.other_calls = 2.0;
  Simulator simulator(chain.problem);
  const auto figures = simulator.run(RetentionPlan(chain.problem), 300);
  // In the backward, each of the others has its gradient of 40 bytes, too, and the loss makes them.
  EXPECT_THAT(simulator.step_bytes(),
              ElementsAre(10 + 140, 30 + 140, 70 + 40 + 140 + 80, 130 + 220, 80 + 220, 55 + 220));
  EXPECT_EQ(figures.saved_bytes, 70);  // of one call
  EXPECT_EQ(figures.peak_bytes, 350);
  EXPECT_EQ(figures.peak_step, 3);
  EXPECT_EQ(figures.forward_peak_bytes, 330);
  EXPECT_EQ(figures.excess, 30.0 + 50.0);
  const auto peak = simulator.peak(figures);
  EXPECT_EQ(peak.operand_bytes + peak.result_bytes + peak.workspace_bytes + peak.other_bytes, 350);

  // Half a call keeps half of it.
  chain.problem.other_calls = 0.5;
  EXPECT_EQ(Simulator(chain.problem).run(RetentionPlan(chain.problem)).peak_bytes, 130 + 55);

  // The next run of a problem without them has none.
  chain.problem.other_calls = 0.0;
  Simulator alone(chain.problem);
  EXPECT_EQ(alone.run(RetentionPlan(chain.problem)).peak_bytes, 130);
  EXPECT_TRUE(alone.other_bytes().empty());
}

// The backward of the first of two calls runs beside the gradients of the second. Those that it has
// handed on are added to them.
TEST(Simulator, GradientsOfLaterCallsAreThereInAnEarlierBackward) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto a = b.fresh("a", {x}, 10);
  b.result(b.fresh("y", {a}, 4));
  b.start_backward();
  const auto dy = b.incoming("dy", 4);
  const auto gw = b.fresh("gw", {dy, a}, 100);
  const auto ga = b.fresh("ga", {dy}, 10);
  const auto gv = b.fresh("gv", {ga}, 50);
  b.result(gw);
  b.result(gv);
  auto problem = b.build();
  problem.other_calls = 1.0;
  const auto bytes_of = [&] {
    Simulator simulator(problem);
    simulator.run(RetentionPlan(problem));
    return simulator.step_bytes();
  };
  // a y, then dy gw a y, gw ga dy y and gw gv ga y. Nothing waits but y and both gradients.
  EXPECT_THAT(bytes_of(), ElementsAre(10 + 14, 14 + 4 + 14 + 4, 118 + 154, 118 + 154, 164 + 154));
  problem.added_results = {gw};
  EXPECT_THAT(bytes_of(), ElementsAre(24, 36, 118 + 154, 118 + 54, 164 + 54));
  problem.added_results = {gw, gv};
  EXPECT_THAT(bytes_of(), ElementsAre(24, 36, 118 + 154, 118 + 54, 164 + 54));
}

// Without it: 10 30 110 | 130 80 55; the backward reads b (20) first and a (10) second.
TEST(Simulator, AGraphThatIsRetainedStaysInMemory) {
  Chain chain;
  chain.problem.retains_graph = true;
  Simulator simulator(chain.problem);
  const auto figures = simulator.run(RetentionPlan(chain.problem));
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 30, 110, 130, 80 + 20, 55 + 20 + 10));
  EXPECT_EQ(figures.saved_bytes, 70);
  EXPECT_EQ(figures.peak_bytes, 130);

  // Another backward releases it, and finds gx of 5 bytes.
  chain.problem.repeats_backward = true;
  Simulator repeated(chain.problem);
  repeated.run(RetentionPlan(chain.problem));
  EXPECT_THAT(repeated.step_bytes(), ElementsAre(10, 30, 110, 130 + 5, 100, 85));

  // What is computed again is freed each time.
  RetentionPlan dropped(chain.problem);
  dropped.drop_always(chain.a);
  dropped.drop_always(chain.bb);
  chain.problem.repeats_backward = false;
  Simulator again(chain.problem);
  again.run(dropped);
  EXPECT_EQ(again.step_bytes(), [&] {
    chain.problem.retains_graph = false;
    Simulator plain(chain.problem);
    plain.run(dropped);
    return plain.step_bytes();
  }());
}

TEST(Simulator, MemoryOfARetainedGraphIsNotTakenOver) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 1000)}, 30);
  b.result(b.fresh("y", {a}, 4));
  b.start_backward();
  const auto dy = b.incoming("dy", 4);
  const auto ga = b.fresh("ga", {dy, a}, 30);
  b.overwrites({a});
  b.result(ga);
  auto problem = b.build();
  const auto last = [&] {
    Simulator simulator(problem);
    simulator.run(RetentionPlan(problem));
    return simulator.step_bytes().back();
  };
  const auto before = last();
  problem.retains_graph = true;
  EXPECT_GE(last(), 30 + 4 + 4 + 30);
  EXPECT_GE(last(), before);
}

TEST(Simulator, AnOutputThatTheLossFreesDoesNotWait) {
  Chain chain;
  chain.problem.other_calls = 1.0;
  chain.problem.freed_before_backward = chain.problem.results;
  Simulator simulator(chain.problem);
  simulator.run(RetentionPlan(chain.problem));
  // Before the loss, the other call has its output of 40 bytes; after it, the gradient.
  EXPECT_THAT(simulator.step_bytes(),
              ElementsAre(10 + 70, 30 + 70, 70 + 40 + 70 + 40, 90 + 70, 40 + 70, 15 + 70));
}

TEST(Simulator, ExcessIsSummedOverForwardStepsAndSlots) {
  const Chain chain;
  Simulator simulator(chain.problem);
  // 10 30 110 | 130 80 55
  EXPECT_EQ(simulator.run(RetentionPlan(chain.problem), 60).excess, 50.0 + 70.0 + 20.0);
  EXPECT_EQ(simulator.run(RetentionPlan(chain.problem), 129).excess, 1.0);
  EXPECT_EQ(simulator.run(RetentionPlan(chain.problem), 130).excess, 0.0);
  // 10 30 80 | (90 110 130) 80 55: the largest of the three steps of the first slot counts.
  RetentionPlan plan(chain.problem);
  plan.drop(chain.a, 0);
  plan.drop(chain.bb, 0);
  EXPECT_EQ(simulator.run(plan, 80).excess, 50.0);
}

TEST(Simulator, OneObjectServesManyRuns) {
  const Chain chain;
  RetentionPlan dropped(chain.problem);
  dropped.drop_always(chain.a);
  dropped.drop_always(chain.bb);
  Simulator simulator(chain.problem);
  EXPECT_EQ(simulator.run(dropped).peak_bytes, 120);
  EXPECT_EQ(simulator.run(RetentionPlan(chain.problem)).peak_bytes, 130);
  EXPECT_EQ(simulator.gaps().size(), 2U);
  EXPECT_EQ(simulator.run(dropped).peak_bytes, 120);
  EXPECT_EQ(listing(simulator), "a b y | a b gb a ga gx");
}

// v views a; the backward reads v twice.
struct Viewing {
  SmallProblemBuilder b;
  int32_t a = b.fresh("a", {b.held("x", 1000)}, 10);
  int32_t v = b.view("v", {a});
  Problem problem;

  Viewing() {
    b.result(b.fresh("y", {v}, 20));
    b.start_backward();
    const auto dy = b.incoming("dy", 20);
    const auto g1 = b.fresh("g1", {dy, v}, 8);
    const auto g2 = b.fresh("g2", {g1, v}, 6);
    b.result(b.fresh("g3", {g2}, 5));
    problem = b.build();
  }
};

// The backward finds a in memory, makes the view once, and holds a until the view's last use.
TEST(Simulator, AViewIsRecomputedAndHoldsItsBaseValue) {
  const Viewing viewing;
  Simulator simulator(viewing.problem);
  const auto figures = simulator.run(RetentionPlan(viewing.problem));
  EXPECT_EQ(listing(simulator), "a v y | v g1 g2 g3");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 10, 10 + 20 + 20,  // a, a, a y, then dy
                                                  10 + 20 + 20,          // a y dy
                                                  10 + 20 + 20 + 8,      // a y dy g1
                                                  10 + 20 + 8 + 6,       // a y g1 g2
                                                  20 + 6 + 5));          // y g2 g3
  EXPECT_EQ(figures.saved_bytes, 30);
  EXPECT_EQ(figures.recompute_seconds, 0.0);
  EXPECT_TRUE(simulator.captured()[viewing.a]);
  EXPECT_FALSE(simulator.captured()[viewing.v]);
  // The view's uses are uses of a.
  EXPECT_THAT(simulator.gaps(),
              ElementsAre(Gap{viewing.a, 0, 1, false}, Gap{viewing.a, 1, 2, false}));
  // y, an output that the backward does not read, is not kept for it.
  EXPECT_THAT(simulator.droppable(), ElementsAre(viewing.a, viewing.a + 2));
}

TEST(Simulator, DroppingABaseValueDropsItsViews) {
  const Viewing viewing;
  RetentionPlan plan(viewing.problem);
  plan.drop(viewing.a, 0);
  Simulator simulator(viewing.problem);
  simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a v y | a v g1 g2 g3");
  plan.drop(viewing.a, 1);
  const auto figures = simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a v y | a v g1 a v g2 g3");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 10, 20 + 20,   // a, a, a y, then y dy
                                                  20 + 20 + 10,      // y dy a
                                                  20 + 20 + 10,      // y dy a
                                                  20 + 20 + 10 + 8,  // y dy a g1
                                                  20 + 8 + 10,       // y g1 a
                                                  20 + 8 + 10,       // y g1 a
                                                  20 + 8 + 10 + 6,   // y g1 a g2
                                                  20 + 6 + 5));      // y g2 g3
  EXPECT_EQ(figures.saved_bytes, 20);
  EXPECT_DOUBLE_EQ(figures.recompute_seconds, 2.0);
}

// Where one of two tensors of a list is dropped, the list is made from the other and a new one.
TEST(Simulator, AContainerNeedsAllItsElements) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto a = b.fresh("a", {x}, 10);
  const auto c = b.fresh("c", {x}, 20);
  const auto list = b.view("list", {a, c});
  b.result(b.fresh("y", {list}, 30));
  b.start_backward();
  const auto dy = b.incoming("dy", 30);
  b.result(b.fresh("g", {dy, list}, 5));
  const auto problem = b.build();
  RetentionPlan plan(problem);
  plan.drop(c, 0);
  Simulator simulator(problem);
  const auto figures = simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a c list y | c list g");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 30, 30, 10 + 30 + 30,  // a c y, then a y dy
                                                  30 + 30 + 10 + 20,         // y dy a c
                                                  30 + 30 + 10 + 20,         // y dy a c
                                                  30 + 30 + 10 + 20 + 5));   // y dy a c g
  EXPECT_EQ(figures.saved_bytes, 40);
}

// y overwrites nothing, b may take a's memory and g may take b's.
struct Overwriting {
  SmallProblemBuilder b;
  int32_t a = b.fresh("a", {b.held("x", 1000)}, 10);
  int32_t bb = b.fresh("b", {a}, 10);
  Problem problem;

  Overwriting() {
    b.overwrites({a});
    b.result(b.fresh("y", {bb}, 10));
    b.start_backward();
    const auto dy = b.incoming("dy", 10);
    b.result(b.fresh("g", {dy, bb}, 10));
    b.overwrites({dy, bb});
    problem = b.build();
  }
};

TEST(Simulator, AnOperandIsOverwrittenByItsLastReader) {
  const Overwriting problem;
  Simulator simulator(problem.problem);
  simulator.run(RetentionPlan(problem.problem));
  // b takes the memory of a. g may take neither that of dy nor that of b, which the backward did
  // not make.
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 10, 10 + 10 + 10,  // a, b, b y, then dy
                                                  10 + 10 + 10 + 10));   // b y dy g
}

TEST(Simulator, AnOperandThatTheBackwardRecomputedIsOverwritten) {
  const Overwriting problem;
  RetentionPlan plan(problem.problem);
  plan.drop(problem.bb, 0);
  plan.drop(problem.a, 0);
  Simulator simulator(problem.problem);
  simulator.run(plan);
  EXPECT_EQ(listing(simulator), "a b y | a b g");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 10, 10 + 10,  // a, b, b y, then y dy
                                                  10 + 10 + 10,     // y dy a
                                                  10 + 10 + 10,     // y dy b
                                                  10 + 10 + 10));   // y dy g
  EXPECT_EQ(simulator.steps()[5].reusable_operands & 3, 2U);        // of dy and b the second
}

TEST(Simulator, OperandsThatAreReadLaterOrOfAnotherSizeAreNotOverwritten) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto a = b.fresh("a", {x}, 10);
  const auto read_later = b.fresh("read_later", {a}, 10);
  b.overwrites({a});
  const auto v = b.view("v", {read_later});
  const auto seen = b.fresh("seen", {a, read_later}, 10);  // a view of read_later lives on
  b.overwrites({read_later});
  const auto larger = b.fresh("larger", {v, seen}, 11);
  b.overwrites({seen});
  const auto held = b.fresh("held", {x, larger}, 1000);
  b.overwrites({x});
  b.result(held);
  b.start_backward();
  b.result(b.fresh("g", {b.incoming("dy", 1000)}, 1));
  const auto problem = b.build();
  Simulator simulator(problem);
  simulator.run(RetentionPlan(problem));
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10,                 // a
                                                  20,                 // a read_later
                                                  20,                 //
                                                  10 + 10 + 10,       // a read_later seen
                                                  10 + 10 + 11,       // read_later seen larger
                                                  1000 + 1000,        // larger held, then dy
                                                  1000 + 1000 + 1));  // held dy g
}

TEST(Simulator, WorkspaceCountsWhileItsNodeRuns) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 1000)}, 10);
  b.workspace(100);
  b.result(b.fresh("y", {a}, 20));
  b.start_backward();
  b.result(b.fresh("g", {b.incoming("dy", 20), a}, 5));
  b.workspace(7);
  const auto problem = b.build();
  Simulator simulator(problem);
  RetentionPlan plan(problem);
  plan.drop(a, 0);
  const auto figures = simulator.run(plan);
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10 + 100,                // a
                                                  20 + 20,                 // a y, then y dy
                                                  20 + 20 + 10 + 100,      // y dy a
                                                  20 + 20 + 10 + 5 + 7));  // y dy a g
  EXPECT_EQ(figures.forward_peak_bytes, 110);
  EXPECT_EQ(figures.saved_bytes, 20);
}

// a draws random numbers. If it runs again, the generator's state before its first run is kept, and
// while it runs again the present state is kept, too.
TEST(Simulator, RecomputingARandomNodeKeepsTheGeneratorState) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 1000)}, 10);
  b.replay(7);
  const auto c = b.fresh("c", {a}, 20);
  b.result(b.fresh("y", {c}, 30));
  b.start_backward();
  const auto dy = b.incoming("dy", 30);
  const auto g1 = b.fresh("g1", {dy, a}, 3);
  const auto g2 = b.fresh("g2", {g1}, 4);
  const auto g3 = b.fresh("g3", {g2, a}, 5);
  b.result(b.fresh("g4", {g3}, 6));
  const auto problem = b.build();
  Simulator simulator(problem);
  EXPECT_EQ(simulator.run(RetentionPlan(problem)).saved_bytes, 10 + 30);
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 10 + 20,       // a, a c
                                                  10 + 30 + 30,      // a c y, then a y dy
                                                  10 + 30 + 30 + 3,  // a y dy g1
                                                  10 + 30 + 3 + 4,   // a y g1 g2
                                                  10 + 30 + 4 + 5,   // a y g2 g3
                                                  30 + 5 + 6));      // y g3 g4
  RetentionPlan plan(problem);
  plan.drop(a, 0);
  plan.drop(a, 1);
  EXPECT_EQ(simulator.run(plan).saved_bytes, 7 + 30);
  EXPECT_EQ(listing(simulator), "a c y | a g1 g2 a g3 g4");
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(7 + 10, 7 + 10 + 20,   // a, a c
                                                  7 + 30 + 30,           // c y, then y dy
                                                  7 + 30 + 30 + 10 + 7,  // y dy a, present state
                                                  7 + 30 + 30 + 10 + 3,  // y dy a g1
                                                  7 + 30 + 3 + 4,        // y g1 g2
                                                  7 + 30 + 4 + 10 + 7,   // y g2 a, present state
                                                  30 + 4 + 10 + 5,       // y g2 a g3
                                                  30 + 5 + 6));          // y g3 g4
}

TEST(Simulator, CountsSingleBytesAndStepsWithoutAny) {
  SmallProblemBuilder b;
  const auto v = b.view("v", {b.held("x", 1000)});
  const auto a = b.fresh("a", {v}, 1);
  b.replay(1);
  b.result(b.fresh("y", {a}, 2));
  b.start_backward();
  const auto dy = b.incoming("dy", 2);
  const auto g1 = b.fresh("g1", {dy}, 3);
  b.result(b.fresh("g2", {g1, a}, 4));
  const auto problem = b.build();
  Simulator simulator(problem);
  EXPECT_THAT(simulator.droppable(), ::testing::Contains(a));
  RetentionPlan plan(problem);
  plan.drop_always(a);
  simulator.run(plan);
  EXPECT_EQ(listing(simulator), "v a y | g1 v a g2");
  // v takes no memory; x is the caller's. The state of a generator takes a byte.
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(0,                  // v
                                                  1 + 1,              // state a
                                                  1 + 2 + 2,          // state y dy
                                                  1 + 2 + 2 + 3,      // state y dy g1
                                                  1 + 2 + 3,          // state y g1, v again
                                                  1 + 2 + 3 + 1 + 1,  // y g1 a, present state
                                                  2 + 3 + 1 + 4));    // y g1 a g2
}

}  // namespace
}  // namespace aten_recompute
