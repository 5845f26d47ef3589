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
Problem chain() {
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
  const auto problem = chain();
  const auto walk = walk_step(problem, RetentionPlan(problem));
  // Moments: a b y loss gb ga gx.
  EXPECT_THAT(lines(problem, walk),
              ElementsAre("- loss 3..4 40", "a kept 0..6 10", "b kept 1..5 20", "dy given 3..5 40",
                          "ga backward 5..7 10", "gb backward 4..6 20", "gx backward 6..7 5",
                          "y kept 2..7 40"));
  EXPECT_THAT(bytes(walk), ElementsAre(10, 30, 70, 150, 130, 80, 55));
  expect_as_simulated(problem, RetentionPlan(problem));
}

TEST(StepBlocks, TellWhatIsDroppedAndMadeAgain) {
  const auto problem = chain();
  RetentionPlan plan(problem);
  plan.drop(problem.outputs[1][0], 0);  // b
  const auto walk = walk_step(problem, plan);
  const auto found = lines(problem, walk);
  EXPECT_THAT(found, ::testing::Contains("b dropped 1..3 20"));
  EXPECT_THAT(found, ::testing::Contains("b recomputed 4..6 20"));
  EXPECT_EQ(walk.moments[4].kind, StepKind::kRecomputed);
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
  EXPECT_THAT(lines(problem, walk), ::testing::Contains("a kept 0..5 10"));
  expect_as_simulated(problem, RetentionPlan(problem));
  RetentionPlan dropped(problem);
  dropped.drop_always(a);
  expect_as_simulated(problem, dropped);
}

TEST(StepBlocks, AResultThatIsMadeAgainIsThereTwice) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto y = b.fresh("y", {x}, 40);
  b.result(y);
  b.start_backward();
  const auto dy = b.incoming("dy", 40);
  b.result(b.fresh("gx", {dy, y}, 5));
  const auto problem = b.build();
  RetentionPlan dropped(problem);
  dropped.drop_always(y);
  const auto found = lines(problem, walk_step(problem, dropped));
  EXPECT_THAT(found, ::testing::Contains("y kept 0..4 40"));
  EXPECT_THAT(found, ::testing::Contains("y recomputed 2..4 40"));
  expect_as_simulated(problem, dropped);
}

}  // namespace
}  // namespace aten_recompute
