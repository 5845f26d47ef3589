#include "planner/model/method_problem.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/model/simulator.h"
#include "planner/search/search.h"
#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using test::SmallProblemBuilder;
using ::testing::ElementsAre;

// h of 10 bytes is read by the backward, y of 4 bytes is the region's output.
struct OneRegion {
  int32_t x = 0;
  int32_t h = 0;
  int32_t y = 0;
  int32_t dx = 0;
  Problem problem;

  explicit OneRegion(const std::string& prefix) {
    SmallProblemBuilder builder;
    x = builder.held(prefix + "x", 4);
    h = builder.fresh(prefix + "h", {x}, 10);
    y = builder.fresh(prefix + "y", {h}, 4);
    builder.result(y);
    builder.start_backward();
    const auto dy = builder.incoming(prefix + "dy", 4);
    dx = builder.fresh(prefix + "dx", {dy, h}, 4);
    builder.result(dx);
    problem = builder.build();
    problem.loss_bytes = 4;
  }
};

// Region b reads the output of region a, and the loss reads the output of b.
struct TwoRegions {
  OneRegion a{"a."};
  OneRegion b{"b."};
  std::vector<RegionRun> runs{{&a.problem, {}, {{false, {{1, b.dx}}, true}}, {a.dx}},
                              {&b.problem, {{b.x, {0, a.y}}}, {{true, {}, true}}, {b.y}}};

  std::vector<const RetentionPlan*> both(const RetentionPlan& of_a,
                                         const RetentionPlan& of_b) const {
    return {&of_a, &of_b};
  }
};

std::string names_of_results(const Problem& problem) {
  std::string names;
  for (auto value : problem.results)
    names += problem.value_names[value] + " ";
  return names;
}

TEST(MethodProblem, ForwardsInOrderAndBackwardsInReverse) {
  const TwoRegions two;
  const auto joint = join(two.runs);
  EXPECT_THAT(joint.problem.node_names,
              ElementsAre("a.h", "a.y", "handed", "b.h", "b.y", "b.dx", "handed", "a.dx"));
  EXPECT_EQ(joint.problem.num_forward, 5U);
  EXPECT_EQ(joint.problem.num_nodes, 8U);
  EXPECT_EQ(names_of_results(joint.problem), "a.dx b.y ");
  ASSERT_EQ(joint.problem.incoming.size(), 1U);
  EXPECT_EQ(joint.problem.value_names[joint.problem.incoming[0]], "b.dy");
  EXPECT_EQ(joint.problem.loss_bytes, 4);
}

TEST(MethodProblem, AValuePassedBetweenRegionsIsOneStorage) {
  const TwoRegions two;
  const auto joint = join(two.runs);
  const auto& problem = joint.problem;
  auto storage = [&](int run, int32_t value) {
    return problem.storages[joint.values[run][value]][0];
  };
  EXPECT_EQ(storage(0, two.a.y), storage(1, two.b.x));
  EXPECT_FALSE(problem.held[storage(1, two.b.x)]);
  EXPECT_EQ(storage(1, two.b.dx), storage(0, two.a.problem.incoming[0]));
  EXPECT_NE(storage(0, two.a.h), storage(1, two.b.h));
}

TEST(MethodProblem, OutputsOfEarlierRegionsDieWithTheirLastReader) {
  const TwoRegions two;
  const auto joint = join(two.runs);
  Simulator simulator(joint.problem);
  const auto unplanned =
      join_retentions(joint, two.runs,
                      two.both(keep_what_is_read(two.a.problem), keep_what_is_read(two.b.problem)));
  simulator.run(unplanned);
  // During b.h these are a.h, a.y and b.h. During b.y they are both h and b.y, because a.y is
  // freed; the loss counts there. a.dx is the last to read the gradient and overwrites nothing; b.y
  // stays.
  EXPECT_THAT(simulator.step_bytes(), ElementsAre(10, 14, 14, 24, 32, 32, 18, 22));
}

TEST(MethodProblem, APlanOfTheWholeIsSplitByRun) {
  const TwoRegions two;
  const auto joint = join(two.runs);
  const auto unplanned =
      join_retentions(joint, two.runs,
                      two.both(keep_what_is_read(two.a.problem), keep_what_is_read(two.b.problem)));
  PlanSearch search(joint.problem, unplanned);
  const auto plan = search.fastest(31);
  ASSERT_TRUE(plan.has_value());
  EXPECT_LE(plan->simulation.peak_bytes, 31);
  EXPECT_EQ(plan->simulation.recompute_seconds, 1.0);

  // Either region alone stays far below the limit, so planned alone it would keep its h.
  double seconds = 0.0;
  for (size_t run = 0; run < 2; ++run) {
    const auto& problem = *two.runs[run].problem;
    Simulator own(problem);
    EXPECT_LT(own.run(keep_what_is_read(problem)).peak_bytes, 31);
    seconds += own.run(retention_of_run(joint, run, problem, plan->retention)).recompute_seconds;
  }
  EXPECT_EQ(seconds, plan->simulation.recompute_seconds);
}

TEST(MethodProblem, SplittingAJoinedPlanReturnsItsParts) {
  const TwoRegions two;
  const auto joint = join(two.runs);
  RetentionPlan of_a(two.a.problem);
  of_a.drop(two.a.h, 0);
  RetentionPlan of_b(two.b.problem);
  of_b.drop(two.b.h, 1);
  const auto all = join_retentions(joint, two.runs, two.both(of_a, of_b));
  EXPECT_EQ(retention_of_run(joint, 0, two.a.problem, all), of_a);
  EXPECT_EQ(retention_of_run(joint, 1, two.b.problem, all), of_b);
}

TEST(MethodProblem, NothingIsRecomputedAcrossRegions) {
  const TwoRegions two;
  const auto joint = join(two.runs);
  // The backward of a does not read its output; that of b would have to recompute it.
  Simulator simulator(joint.problem);
  const auto handed = joint.values[1][two.b.x];
  EXPECT_EQ(std::count(simulator.droppable().begin(), simulator.droppable().end(), handed), 0);
  EXPECT_EQ(std::count(simulator.droppable().begin(), simulator.droppable().end(),
                       joint.values[0][two.a.h]),
            1);
}

TEST(MethodProblem, GradientsOfTheLossAndALaterRegionAreSummedInPlace) {
  TwoRegions two;
  two.runs[0].incoming[0].from_loss = true;
  two.runs[0].live_to_end.push_back(two.a.y);
  const auto joint = join(two.runs);
  const auto& problem = joint.problem;
  EXPECT_EQ(problem.incoming.size(), 2U);
  const auto sum = joint.values[0][two.a.problem.incoming[0]];
  const auto handed = problem.inputs[problem.producer[sum]];
  ASSERT_EQ(handed.size(), 1U);
  const auto inputs = problem.inputs[problem.producer[handed[0]]];
  ASSERT_EQ(inputs.size(), 2U);
  EXPECT_EQ(problem.storages[inputs[0]][0], problem.storages[sum][0]);
  EXPECT_EQ(inputs[1], joint.values[1][two.b.dx]);
  // Neither makes memory of its own, so neither is anything that a plan could drop.
  EXPECT_TRUE(problem.is_view[problem.producer[sum]]);
  EXPECT_TRUE(problem.is_view[problem.producer[handed[0]]]);
}

// a's output is read by b and c.
struct TwoReaders {
  OneRegion a{"a."};
  OneRegion b{"b."};
  OneRegion c{"c."};
  std::vector<RegionRun> runs{{&a.problem, {}, {{false, {{2, c.dx}, {1, b.dx}}, true}}, {a.dx}},
                              {&b.problem, {{b.x, {0, a.y}}}, {{true, {}, true}}, {b.y}},
                              {&c.problem, {{c.x, {0, a.y}}}, {{true, {}, true}}, {c.y}}};
};

TEST(MethodProblem, GradientsOfSeveralRegionsAreSummedInTheirOrder) {
  const TwoReaders three;
  const auto joint = join(three.runs);
  const auto& problem = joint.problem;
  EXPECT_THAT(problem.node_names, ElementsAre("a.h", "a.y", "handed", "b.h", "b.y", "handed", "c.h",
                                              "c.y", "c.dx", "b.dx", "sum", "handed", "a.dx"));
  const auto storage = [&](int run, int32_t value) {
    return problem.storages[joint.values[run][value]][0];
  };
  EXPECT_EQ(storage(0, three.a.problem.incoming[0]), storage(2, three.c.dx));
  Simulator simulator(problem);
  const auto of_a = keep_what_is_read(three.a.problem);
  const auto of_b = keep_what_is_read(three.b.problem);
  const auto of_c = keep_what_is_read(three.c.problem);
  simulator.run(join_retentions(joint, three.runs, {&of_a, &of_b, &of_c}));
  // b.y, c.y, a.h and the sum are alive; the second gradient is freed.
  EXPECT_EQ(simulator.step_bytes()[11], 4 + 4 + 10 + 4);
}

TEST(MethodProblem, AnOutputThatNothingReadsHasNoGradient) {
  TwoRegions two;
  two.runs[0].incoming[0] = {};
  const auto joint = join(two.runs);
  EXPECT_EQ(joint.problem.incoming.size(), 1U);
  EXPECT_EQ(joint.problem.loss_bytes, 4);
  EXPECT_TRUE(joint.problem.storages[joint.values[0][two.a.problem.incoming[0]]].empty());
}

TEST(MethodProblem, AGivenValueHasTheBytesOfThisCall) {
  TwoRegions two;
  two.runs[1].given[0] = {two.b.x, {-1, -1}, false, 7};
  const auto joint = join(two.runs);
  const auto storage = joint.problem.storages[joint.values[1][two.b.x]][0];
  EXPECT_EQ(joint.problem.bytes[storage], 7);
}

TEST(MethodProblem, AGivenValueMayBeWithoutElements) {
  TwoRegions two;
  two.runs[1].given[0] = {two.b.x, {-1, -1}, false, 0};
  const auto joint = join(two.runs);
  EXPECT_EQ(joint.problem.bytes[joint.problem.storages[joint.values[1][two.b.x]][0]], 0);
}

// The gradient that a makes takes over the memory of the one that b hands to it, unless that is
// expanded and takes less.
TEST(MethodProblem, AnExpandedGradientIsNotOverwritten) {
  for (const int64_t bytes : {4, 2}) {
    TwoRegions two;
    SmallProblemBuilder builder;
    const auto given = builder.held("a.x", 4);
    const auto y = builder.fresh("a.y", {given}, 4);
    builder.result(y);
    builder.start_backward();
    const auto dy = builder.incoming("a.dy", 4);
    const auto wide = builder.fresh("a.wide", {dy}, 8);
    const auto dx = builder.fresh("a.dx", {dy, wide}, 4);
    builder.overwrites({dy});
    builder.result(dx);
    const auto problem = builder.build();
    two.b.problem.bytes[two.b.problem.storages[two.b.dx][0]] = bytes;
    two.runs[0] = {&problem, {}, {{false, {{1, two.b.dx}}, true}}, {dx}};
    two.runs[1].given[0] = {two.b.x, {0, y}};
    const auto joint = join(two.runs);
    const auto node = joint.nodes[0][problem.producer[dx]];
    EXPECT_EQ(joint.problem.overwrites[node].empty(), bytes == 2) << bytes;
  }
}

TEST(MethodProblem, OperatorsBetweenTheRegionsKeepAndNeedMemory) {
  TwoRegions two;
  const auto bytes = [&](const MethodProblem& joint) {
    const auto of_a = keep_what_is_read(two.a.problem);
    const auto of_b = keep_what_is_read(two.b.problem);
    Simulator simulator(joint.problem);
    simulator.run(join_retentions(joint, two.runs, {&of_a, &of_b}));
    return simulator.step_bytes();
  };
  const auto before = bytes(join(two.runs));
  two.runs[1].kept_before = 100;
  two.runs[1].beyond_in_backward = 1000;
  two.runs[1].beyond_after_backward = 10000;
  const auto joint = join(two.runs, 100000);
  const auto& names = joint.problem.node_names;
  EXPECT_THAT(names, ElementsAre("a.h", "a.y", "handed", "between", "b.h", "b.y", "between",
                                 "between", "begin", "b.dx", "end", "between", "handed", "a.dx"));
  const auto after = bytes(joint);
  EXPECT_EQ(after[0], before[0]);               // a.h
  EXPECT_EQ(after[4], before[3] + 100);         // b.h
  EXPECT_EQ(after[9], before[5] + 100 + 1000);  // b.dx
  EXPECT_GE(after[11], 100 + 10000);
  EXPECT_EQ(after[13], before[7]);  // a.dx
  EXPECT_EQ(joint.between[1], 3);
  EXPECT_EQ(joint.begin[1], 8);
  EXPECT_EQ(joint.between_again[1], 11);
  EXPECT_EQ(joint.between[0], -1);
}

TEST(MethodProblem, ValuesMadeBetweenTheRegionsHaveMemoryOfTheirOwn) {
  TwoRegions two;
  two.runs[1].given[0].from = {-1, -1};
  two.runs[0].incoming[0].passthrough = false;
  const auto joint = join(two.runs);
  const auto& problem = joint.problem;
  const auto given = problem.storages[joint.values[1][two.b.x]][0];
  EXPECT_NE(given, problem.storages[joint.values[0][two.a.y]][0]);
  EXPECT_FALSE(problem.held[given]);
  EXPECT_NE(problem.storages[joint.values[0][two.a.problem.incoming[0]]][0],
            problem.storages[joint.values[1][two.b.dx]][0]);
}

TEST(MethodProblem, AlternativesBelongToTheirNode) {
  SmallProblemBuilder builder;
  const auto x = builder.held("x", 4);
  const auto h = builder.fresh("h", {x}, 10);
  builder.start_backward();
  const auto dh = builder.incoming("dh", 4);
  builder.result(builder.fresh("dx", {dh, h}, 4));
  const auto instead = builder.alternative(h, {x}, 0.5);
  const auto problem = builder.build();
  const std::vector<RegionRun> runs{{&problem, {}, {{true, {}, true}}, {}},
                                    {&problem, {}, {{true, {}, true}}, {}}};
  const auto joint = join(runs);
  EXPECT_EQ(joint.problem.num_all_nodes(), joint.problem.num_nodes + 2);
  for (size_t run = 0; run < 2; ++run) {
    const auto row = joint.problem.alternatives[joint.nodes[run][problem.producer[h]]];
    ASSERT_EQ(row.size(), 1U);
    EXPECT_EQ(row[0], joint.nodes[run][instead]);
    RetentionPlan plan(joint.problem);
    plan.choose(joint.nodes[run][problem.producer[h]], row[0]);
    EXPECT_EQ(retention_of_run(joint, run, problem, plan).chosen(problem.producer[h]), instead);
  }
}

// A value that b is given, with a plan that drops it.
struct MadeAgain : TwoRegions {
  MadeAgain() { runs[1].given[0].may_be_made_again = true; }
};

TEST(MethodProblem, AHandedValueThatIsDroppedIsMadeAgainFromWhatItsRegionWasGiven) {
  const MadeAgain two;
  const auto joint = join(two.runs);
  const auto& problem = joint.problem;
  const auto handed = problem.producer[joint.values[1][two.b.x]];
  const auto again = problem.again_of(handed);
  ASSERT_NE(again, handed);
  EXPECT_EQ(problem.node_names[again], "again");
  EXPECT_THAT(problem.inputs[again], ElementsAre(joint.values[0][two.a.x]));
  EXPECT_THAT(problem.outputs[again], ElementsAre(joint.values[1][two.b.x]));
  EXPECT_EQ(problem.workspace_bytes[again], 10);  // h, beside y
  EXPECT_EQ(problem.seconds[again], two.a.problem.seconds[0] + two.a.problem.seconds[1]);
}

TEST(MethodProblem, AHandedValueStaysOnceItIsMadeAgain) {
  const MadeAgain two;
  const auto joint = join(two.runs);
  RetentionPlan plan(joint.problem);
  plan.drop_always(joint.values[1][two.b.x]);
  plan.drop_always(joint.values[1][two.b.h]);  // computed again from what b is given
  Simulator simulator(joint.problem);
  simulator.run(plan);
  const auto runs_again = [&] {
    return std::count_if(simulator.steps().begin(), simulator.steps().end(), [&](const Step& step) {
      return joint.problem.node_names[step.node] == "again";
    });
  };
  EXPECT_EQ(runs_again(), 1);
  EXPECT_THAT(made_again(joint, two.runs, plan)[1], ElementsAre(two.b.x));
  plan.set_always(joint.values[1][two.b.x], false);
  simulator.run(plan);
  EXPECT_EQ(runs_again(), 0);
  EXPECT_TRUE(made_again(joint, two.runs, plan)[1].empty());
}

TEST(MethodProblem, ARegionNeedNotKeepAResultThatIsMadeAgain) {
  MadeAgain two;
  EXPECT_THAT(handed_results(two.runs, 0), ElementsAre(two.a.y));
  two.runs[1].given[0].may_be_made_again = false;
  EXPECT_TRUE(handed_results(two.runs, 0).empty());
  EXPECT_TRUE(join(two.runs).problem.again.empty());
}

}  // namespace
}  // namespace aten_recompute
