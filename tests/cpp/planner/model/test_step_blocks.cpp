// What is alive in a step, block by block, of problems that can be worked out by hand.
#include "planner/model/step_blocks.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using test::SmallProblemBuilder;
using ::testing::ElementsAre;

// Returns lines such as "a kept 0..3 10".
std::vector<std::string> lines(const Problem& problem, const StepMemoryWalk& walk) {
  const std::vector<std::string> kinds{"kept",     "dropped", "temporary", "recomputed",
                                       "backward", "given",   "workspace", "loss"};
  std::vector<std::string> found;
  for (const auto& block : walk.blocks) {
    const auto name = block.value < 0 ? "-" : problem.value_names[block.value];
    found.push_back(name + " " + kinds[static_cast<size_t>(block.kind)] + " " +
                    std::to_string(block.begin) + ".." + std::to_string(block.end) + " " +
                    std::to_string(block.bytes));
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::vector<int64_t> bytes(const StepMemoryWalk& walk) {
  std::vector<int64_t> found;
  for (const auto& moment : walk.moments)
    found.push_back(moment.bytes);
  return found;
}

// Compares each moment with what the simulator counts; the loss counts with the step before it.
void expect_as_simulated(const Problem& problem, const RetentionPlan& plan) {
  const auto walk = walk_step(problem, plan);
  Simulator simulator(problem);
  const auto simulation = simulator.run(plan);
  std::vector<int64_t> merged;
  int64_t peak = 0;
  for (const auto& moment : walk.moments) {
    peak = std::max(peak, moment.bytes);
    if (moment.kind == StepKind::kLoss)
      merged.back() = std::max(merged.back(), moment.bytes);
    else
      merged.push_back(moment.bytes);
  }
  EXPECT_EQ(merged, simulator.step_bytes());
  EXPECT_EQ(peak, simulation.peak_bytes);
}

// y = h(g(f(x))), with a gradient that reads b, then a.
Problem chain_of_two() {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto a = b.fresh("a", {x}, 10);
  const auto bb = b.fresh("b", {a}, 20);
  const auto y = b.fresh("y", {bb}, 40);
  b.result(y);
  b.start_backward();
  const auto dy = b.incoming("dy", 40);
  const auto gb = b.fresh("gb", {dy, bb}, 20);
  const auto ga = b.fresh("ga", {gb, a}, 10);
  b.result(b.fresh("gx", {ga}, 5));
  return b.build();
}

TEST(StepBlocks, SayWhatIsAliveFromWhereToWhere) {
  auto problem = chain_of_two();
  problem.loss_bytes = 40;
  const auto walk = walk_step(problem, RetentionPlan(problem));
  // Moments: a b y loss gb ga gx.
  EXPECT_THAT(lines(problem, walk),
              ElementsAre("- loss 3..4 40", "a kept 0..6 10", "b kept 1..5 20", "dy given 3..5 40",
                          "ga backward 5..7 10", "gb backward 4..6 20", "gx backward 6..7 5",
                          "y kept 2..7 40"));
  EXPECT_THAT(bytes(walk), ElementsAre(10, 30, 70, 150, 130, 80, 55));
  expect_as_simulated(problem, RetentionPlan(problem));
}

TEST(StepBlocks, TellWhatOtherCallsHold) {
  auto problem = chain_of_two();
  problem.loss_bytes = 40;
  problem.other_calls = 1.0;
  const auto walk = walk_step(problem, RetentionPlan(problem));
  // The loss makes the gradient of the other call, which has it from then on.
  EXPECT_THAT(bytes(walk),
              ElementsAre(10 + 70, 30 + 70, 70 + 70, 150 + 110, 130 + 110, 80 + 110, 55 + 110));
  EXPECT_THAT(lines(problem, walk),
              ::testing::IsSupersetOf({"- given 0..4 70", "- given 3..4 40", "- given 4..7 110"}));
  expect_as_simulated(problem, RetentionPlan(problem));
}

TEST(StepBlocks, TellWhatARetainedGraphHolds) {
  auto problem = chain_of_two();
  problem.retains_graph = problem.repeats_backward = true;
  const auto walk = walk_step(problem, RetentionPlan(problem));
  EXPECT_THAT(bytes(walk), ElementsAre(10, 30, 70, 110, 130 + 5, 80 + 20, 55 + 30));
  expect_as_simulated(problem, RetentionPlan(problem));
}

TEST(StepBlocks, TellWhatIsDroppedAndMadeAgain) {
  const auto problem = chain_of_two();
  RetentionPlan plan(problem);
  plan.drop(problem.outputs[1][0], 0);  // b
  const auto walk = walk_step(problem, plan);
  const auto found = lines(problem, walk);
  EXPECT_THAT(found, ::testing::Contains("b dropped 1..3 20"));
  EXPECT_THAT(found, ::testing::Contains("b recomputed 4..6 20"));
  EXPECT_EQ(walk.moments[4].kind, StepKind::kRecomputed);
  expect_as_simulated(problem, plan);
}

TEST(StepBlocks, TellThatTheFirstValueIsMadeAgain) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {}, 10);
  ASSERT_EQ(a, 0);
  b.result(b.fresh("y", {a}, 5));
  b.start_backward();
  b.result(b.fresh("g", {b.incoming("dy", 5), a}, 7));
  const auto problem = b.build();
  RetentionPlan plan(problem);
  plan.drop_always(a);
  const auto found = lines(problem, walk_step(problem, plan));
  EXPECT_THAT(found, ::testing::Contains("a dropped 0..2 10"));
  EXPECT_THAT(found, ::testing::Contains("a recomputed 3..5 10"));
  expect_as_simulated(problem, plan);
}

TEST(StepBlocks, AViewKeepsWhatItViews) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto a = b.fresh("a", {x}, 10);
  const auto view = b.view("v", {a});
  const auto y = b.fresh("y", {view}, 40);
  b.result(y);
  b.start_backward();
  const auto dy = b.incoming("dy", 40);
  b.result(b.fresh("gx", {dy, view}, 5));
  const auto problem = b.build();
  const auto walk = walk_step(problem, RetentionPlan(problem));
  EXPECT_THAT(lines(problem, walk), ::testing::Contains("a kept 0..6 10"));
  expect_as_simulated(problem, RetentionPlan(problem));
  RetentionPlan dropped(problem);
  dropped.drop_always(a);
  expect_as_simulated(problem, dropped);
}

// The caller holds a. The backward makes a again to make b, so both copies are alive at once.
TEST(StepBlocks, AResultThatIsMadeAgainIsThereTwice) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 1000)}, 10);
  const auto bb = b.fresh("b", {a}, 20);
  b.result(a);
  b.result(b.fresh("y", {bb}, 40));
  b.start_backward();
  const auto dy = b.incoming("dy", 40);
  b.result(b.fresh("g", {dy, bb}, 5));
  auto problem = b.build();
  RetentionPlan plan(problem);
  plan.drop_always(a);
  plan.drop_always(bb);
  // Moments: a b y loss a b g.
  EXPECT_THAT(lines(problem, walk_step(problem, plan)),
              ElementsAre("a kept 0..7 10", "a recomputed 4..6 10", "b dropped 1..3 20",
                          "b recomputed 5..7 20", "dy given 3..7 40", "g backward 6..7 5",
                          "y kept 2..7 40"));
  expect_as_simulated(problem, plan);
  problem.held_by_caller = 7;
  expect_as_simulated(problem, plan);
  problem.freed_before_backward = {a};
  expect_as_simulated(problem, plan);
}

// Every way to drop the values of a chain, with workspaces and random states.
TEST(StepBlocks, AddUpToWhatTheSimulatorCounts) {
  auto problem = chain_of_two();
  problem.loss_bytes = 13;
  problem.held_by_caller = 3;
  for (size_t node = 0; node < problem.num_nodes; ++node)
    problem.workspace_bytes[node] = static_cast<int64_t>(100 + node);
  problem.replay_bytes[1] = 1000;
  for (size_t choice = 0; choice < 64; ++choice) {
    RetentionPlan plan(problem);
    for (size_t value = 0; value < 2; ++value) {
      for (size_t slot = 0; slot < 3; ++slot)
        plan.set(problem.outputs[value][0], slot, (choice >> (3 * value + slot) & 1) != 0);
    }
    expect_as_simulated(problem, plan);
  }
}

TEST(StepBlocks, ResultsThatNothingReadsAreWorkspace) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto pair = b.fresh({x}, {{"a", 10}, {"unread", 30}});
  b.result(b.fresh("y", {pair[0]}, 40));
  b.start_backward();
  b.result(b.fresh("g", {b.incoming("dy", 40), pair[0]}, 5));
  const auto problem = b.build();
  RetentionPlan plan(problem);
  plan.drop_always(pair[0]);
  // Moments: a y loss a g.
  EXPECT_THAT(lines(problem, walk_step(problem, plan)),
              ::testing::IsSupersetOf({"unread workspace 0..1 30", "a dropped 0..2 10",
                                       "unread workspace 3..4 30", "a recomputed 3..5 10"}));
  expect_as_simulated(problem, plan);
}

// The first gradient takes over the memory of the operand that dies there.
TEST(StepBlocks, EndWhereTheirMemoryIsTakenOver) {
  auto problem = chain_of_two();
  JaggedArray overwrites;
  for (size_t node = 0; node < problem.num_all_nodes(); ++node) {
    if (node == 1 || node == 4)
      overwrites.push_back(problem.inputs[node]);
    else
      overwrites.push_back({});
  }
  problem.overwrites = overwrites;
  problem.bytes.assign(problem.num_storages(), 10);
  RetentionPlan plan(problem);
  expect_as_simulated(problem, plan);
  plan.drop_always(problem.outputs[0][0]);
  plan.drop_always(problem.outputs[1][0]);
  expect_as_simulated(problem, plan);
  // The b of the backward lies where its a lay, so that they are not alive together.
  const auto found = lines(problem, walk_step(problem, plan));
  EXPECT_THAT(found, ::testing::Contains("a dropped 0..1 10"));
}

}  // namespace
}  // namespace aten_recompute
