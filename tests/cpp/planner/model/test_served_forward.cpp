// Problems with a gradient inside of the forward: an energy, its forces, and the backward of a loss
// on both. The bytes can be worked out by hand.
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/model/plan_file.h"
#include "planner/model/problem_json.h"
#include "planner/model/simulator.h"
#include "planner/model/step_blocks.h"
#include "planner/search/cuts.h"
#include "planner/search/search.h"
#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

// Slot 0 makes the energy, slots 1 and 2 are the forces, slots 3 and 4 the backward.
struct Forces {
  Forces() {
    test::SmallProblemBuilder builder;
    a = builder.fresh("a", {builder.held("x", 100)}, 100);
    b = builder.fresh("b", {a}, 100);
    energy = builder.fresh("e", {b}, 10);
    builder.result(energy);
    builder.start_served();
    f = builder.fresh("f", {b}, 100);
    builder.result(builder.fresh("forces", {f, a}, 50));
    builder.start_backward();
    const auto g = builder.fresh("g", {builder.incoming("dforces", 50), f, a}, 60);
    builder.result(builder.fresh("dx", {g, b}, 40));
    problem = builder.build();
  }

  int32_t a = 0, b = 0, energy = 0, f = 0;
  Problem problem;
};

std::vector<std::string> names_of_steps(const Problem& problem, const std::vector<Step>& steps) {
  std::vector<std::string> names;
  for (const auto& step : steps)
    names.push_back(problem.node_names[step.node] + std::to_string(step.slot));
  return names;
}

TEST(ServedForward, ProblemsNumberTheSlots) {
  const Forces example;
  const auto& problem = example.problem;
  EXPECT_EQ(problem.first_served(), 3U);
  EXPECT_EQ(problem.num_slots(), 5U);
  EXPECT_EQ(problem.slot_of(2), 0);
  EXPECT_EQ(problem.slot_of(3), 1);
  EXPECT_EQ(problem.node_of(3), 5);
  EXPECT_TRUE(problem.is_before_loss(2));
  EXPECT_FALSE(problem.is_before_loss(3));
  EXPECT_FALSE(problem.runs_again(3, 1));
  EXPECT_TRUE(problem.runs_again(3, 3));
  EXPECT_THAT(last_slots_of_forward(problem, base_values(problem)),
              ElementsAre(0, 2, 1, 0, 2, 2, 0, 0, 0));
}

TEST(ServedForward, NothingRunsTwiceWithoutADrop) {
  const Forces example;
  Simulator simulator(example.problem);
  simulator.run(RetentionPlan(example.problem));
  EXPECT_THAT(names_of_steps(example.problem, simulator.steps()),
              ElementsAre("a0", "b0", "e0", "f1", "forces2", "g3", "dx4"));
}

TEST(ServedForward, AValueIsMadeAgainForTheForcesAndForTheBackward) {
  const Forces example;
  RetentionPlan plan(example.problem);
  plan.drop_always(example.b);
  plan.drop(example.a, 2);
  Simulator simulator(example.problem);
  const auto simulation = simulator.run(plan);
  EXPECT_THAT(names_of_steps(example.problem, simulator.steps()),
              ElementsAre("a0", "b0", "e0", "b1", "f1", "forces2", "a3", "g3", "b4", "dx4"));
  EXPECT_THAT(simulator.step_bytes(),
              ElementsAre(100, 200, 210, 210, 310, 260, 310, 370, 320, 260));
  EXPECT_EQ(simulation.saved_bytes, 160);  // e, f and forces
  EXPECT_EQ(simulation.forward_peak_bytes, 310);
  EXPECT_EQ(simulation.recompute_seconds, 3.0);
}

TEST(ServedForward, AValueOfTheForcesIsMadeAgainInTheBackward) {
  const Forces example;
  RetentionPlan plan(example.problem);
  plan.drop_always(example.f);
  Simulator simulator(example.problem);
  const auto simulation = simulator.run(plan);
  EXPECT_THAT(names_of_steps(example.problem, simulator.steps()),
              ElementsAre("a0", "b0", "e0", "f1", "f2", "forces2", "f3", "g3", "dx4"));
  EXPECT_EQ(simulation.saved_bytes, 260);  // a, b, e and forces
}

TEST(ServedForward, ResultsStayInMemoryBeforeTheLoss) {
  const Forces example;
  RetentionPlan plan(example.problem);
  for (size_t value = 0; value < example.problem.num_values(); ++value)
    plan.drop_always(static_cast<int32_t>(value));
  Simulator simulator(example.problem);
  simulator.run(plan);
  EXPECT_THAT(names_of_steps(example.problem, simulator.steps()),
              ElementsAre("a0", "b0", "e0", "a1", "b1", "f1", "a2", "b2", "f2", "forces2", "a3",
                          "b3", "f3", "g3", "a4", "b4", "dx4"));
}

TEST(ServedForward, BlocksAddUpToWhatIsSimulated) {
  const Forces example;
  for (const auto value : {example.a, example.b, example.f}) {
    for (const size_t slot : {0, 1, 2, 3}) {
      RetentionPlan plan(example.problem);
      plan.drop(value, slot);
      plan.drop_always(example.b);
      Simulator simulator(example.problem);
      const auto simulation = simulator.run(plan);
      const auto walk = walk_step(example.problem, plan);
      std::vector<int64_t> merged;
      for (const auto& moment : walk.moments) {
        if (moment.kind == StepKind::kLoss)
          merged.back() = std::max(merged.back(), moment.bytes);
        else
          merged.push_back(moment.bytes);
      }
      EXPECT_EQ(merged, simulator.step_bytes());
      EXPECT_EQ(walk.simulation.peak_bytes, simulation.peak_bytes);
    }
  }
}

TEST(ServedForward, TheSearchMakesTheForwardSmaller) {
  Forces example;
  example.problem.workspace_bytes[3] = 500;  // of f
  const auto unplanned = keep_what_is_read(example.problem);
  Simulator simulator(example.problem);
  const auto simulation = simulator.run(unplanned);
  EXPECT_EQ(simulation.recompute_seconds, 0.0);
  EXPECT_EQ(simulation.peak_bytes, 810);  // a, b, e, f and its workspace
  PlanSearch search(example.problem, unplanned);
  EXPECT_EQ(search.smallest_peak_bytes(), 710);  // a is made again after f
  const auto smallest = search.fastest(710);
  EXPECT_EQ(smallest->simulation.recompute_seconds, 1.0);
  EXPECT_TRUE(smallest->retention.dropped(example.a, 0));
}

TEST(ServedForward, ValuesAtCutsAreThoseOfTheirOwnStretch) {
  test::SmallProblemBuilder builder;
  const auto a = builder.fresh("a", {builder.held("x", 100)}, 100);
  const auto n = builder.fresh("n", {a}, 10);
  const auto b = builder.fresh("b", {n}, 100);
  const auto m = builder.fresh("m", {b}, 10);
  const auto c = builder.fresh("c", {m}, 100);
  builder.result(builder.fresh("e", {c}, 1));
  builder.start_served();
  const auto f = builder.fresh("f", {c}, 100);
  const auto h = builder.fresh("h", {f, b}, 10);
  const auto i = builder.fresh("i", {h, a}, 100);
  builder.result(builder.fresh("forces", {i}, 1));
  builder.start_backward();
  builder.result(builder.fresh("dx", {builder.incoming("dforces", 1), h, a}, 100));
  const auto problem = builder.build();
  // a, b and c are read by the forces alone where a cut is, and are made again for them.
  EXPECT_THAT(values_at_cuts(problem, Simulator(problem).droppable()), ElementsAre(n, m, h));
}

TEST(ServedForward, FilesKeepTheSlots) {
  const Forces example;
  const auto read = problem_from_json(to_json(example.problem));
  EXPECT_EQ(read.num_served_forward, 2U);
  RetentionPlan plan(example.problem);
  plan.drop_always(example.b);
  plan.drop(example.a, 2);
  const auto file = plan_file({plan_to_json(example.problem, plan)}, {});
  const auto again = plan_from_file(read, file);
  Simulator simulator(read);
  simulator.run(again);
  EXPECT_THAT(names_of_steps(read, simulator.steps()),
              ElementsAre("a0", "b0", "e0", "b1", "f1", "forces2", "a3", "g3", "b4", "dx4"));
}

}  // namespace
}  // namespace aten_recompute
