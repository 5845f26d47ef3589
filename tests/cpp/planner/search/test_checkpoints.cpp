#include "planner/search/checkpoints.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/search/moves.h"
#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using test::listing;
using test::SmallProblemBuilder;

constexpr int64_t kCheckpoint = 1000;  // bytes
constexpr int64_t kInner = 4000;

// `length` blocks of two nodes each: a wide value, and the narrow one that the next block reads.
// The backward of a block reads its wide value.
Problem blocks(int length) {
  SmallProblemBuilder b;
  auto x = b.held("x", 100000);
  std::vector<int32_t> wide;
  for (int i = 0; i < length; ++i) {
    wide.push_back(b.fresh("w" + std::to_string(i), {x}, kInner));
    x = b.fresh("x" + std::to_string(i), {wide.back()}, kCheckpoint);
  }
  b.result(b.fresh("y", {x}, 1));
  b.start_backward();
  auto gradient = b.incoming("dy", 1);
  for (int i = length; i-- > 0;)
    gradient = b.fresh("g" + std::to_string(i), {gradient, wide[i]}, 1);
  b.result(gradient);
  return b.build();
}

// Drops everything at the end of the forward and keeps what the backward recomputed.
RetentionPlan recompute_once(const Problem& problem, const Simulator& simulator) {
  RetentionPlan plan(problem);
  for (auto value : simulator.droppable())
    plan.drop(value, 0);
  return plan;
}

struct Scheduled {
  Simulation simulation;
  std::string listing;
};

Scheduled scheduled(const Problem& problem, int64_t limit_bytes) {
  Simulator simulator(problem);
  const Checkpoints checkpoints(problem, simulator.droppable());
  const auto inner = recompute_once(problem, simulator);
  simulator.run(checkpoints.keep_all(inner));
  const auto plan =
      checkpoints.schedule(inner, checkpoints.needs(simulator.last_run()), limit_bytes);
  if (!plan)
    return {};
  const auto simulation = simulator.run(*plan);
  const auto steps = listing(simulator);
  const auto canonical = Moves(problem, simulator.droppable()).canonicalize(simulator.last_run());
  EXPECT_EQ(simulator.run(canonical).peak_bytes, simulation.peak_bytes);
  EXPECT_EQ(listing(simulator), steps);
  return {simulation, steps};
}

// Returns the least number of blocks that run again on the way from one checkpoint to another
// (Griewank and Walther, "Algorithm 799: revolve", 2000), with `room` checkpoints beside the input.
int64_t fewest_passed_again(int64_t blocks, int64_t room) {
  if (room == 0 || blocks <= 1)
    return blocks * (blocks - 1) / 2;
  int64_t fewest = blocks * blocks;
  for (int64_t split = 1; split < blocks; ++split) {
    fewest = std::min(fewest, split + fewest_passed_again(blocks - split, room - 1) +
                                  fewest_passed_again(split, room));
  }
  return fewest;
}
// Returns the same number after a forward that has kept the first checkpoints and the input of the
// last block.
int64_t fewest_after_forward(int64_t blocks, int64_t room) {
  if (room == 0 || blocks <= 1)
    return fewest_passed_again(blocks - 1, 0);
  int64_t fewest = blocks * blocks;
  for (int64_t split = 1; split < blocks; ++split) {
    fewest = std::min(
        fewest, fewest_after_forward(blocks - split, room - 1) + fewest_passed_again(split, room));
  }
  return fewest;
}

class CheckpointsOfBlocks : public testing::TestWithParam<int> {};

// Running a block again takes two seconds, recomputing its wide value one.
TEST_P(CheckpointsOfBlocks, TakeTheLeastTimeThatIsKnown) {
  const auto room = GetParam();
  constexpr int kBlocks = 9;
  const auto problem = blocks(kBlocks);
  // The backward of a block computes its wide value from the checkpoint before it. Half a
  // checkpoint is for gradients and for rounding.
  const auto limit = kInner + kCheckpoint * (1 + room) + kCheckpoint / 2;
  const auto found = scheduled(problem, limit);
  // On the way to a checkpoint, a wide value and the next checkpoint are alive at once.
  EXPECT_LE(found.simulation.peak_bytes, limit + kCheckpoint);
  EXPECT_EQ(found.simulation.recompute_seconds,
            2.0 * static_cast<double>(fewest_after_forward(kBlocks, room)) + kBlocks);
}

INSTANTIATE_TEST_SUITE_P(Room, CheckpointsOfBlocks, testing::Values(1, 2, 3, 4, 8));

TEST(Checkpoints, AreRecomputedAndDropped) {
  EXPECT_EQ(scheduled(blocks(3), 100000).listing, "w0 x0 w1 x1 w2 x2 y | w2 g2 w1 g1 w0 g0");
  EXPECT_EQ(scheduled(blocks(3), kInner + 3 * kCheckpoint / 2).listing,
            "w0 x0 w1 x1 w2 x2 y | w2 g2 w0 x0 w1 g1 w0 g0");
}

TEST(Checkpoints, FindNoScheduleIfAPartNeedsMoreThanTheLimit) {
  EXPECT_TRUE(scheduled(blocks(3), kInner).listing.empty());
}

TEST(Checkpoints, KeepTheValueOfALongSkip) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 100000);
  const auto skip = b.fresh("skip", {x}, kCheckpoint / 2);
  auto value = skip;
  std::vector<int32_t> wide;
  for (int i = 0; i < 4; ++i) {
    wide.push_back(b.fresh("w" + std::to_string(i), {value}, kInner));
    value = b.fresh("v" + std::to_string(i), {wide.back()}, kCheckpoint);
  }
  wide.push_back(b.fresh("last", {value, skip}, kInner));
  b.result(b.fresh("y", {wide.back()}, 1));
  b.start_backward();
  auto gradient = b.incoming("dy", 1);
  for (size_t i = wide.size(); i-- > 0;)
    gradient = b.fresh("g" + std::to_string(i), {gradient, wide[i]}, 1);
  b.result(gradient);
  // v1 and the skip are kept, from which v2 and v0 are recomputed, and v3, which the backward reads
  // first.
  EXPECT_EQ(scheduled(b.build(), kInner + 3 * kCheckpoint).listing,
            "skip w0 v0 w1 v1 w2 v2 w3 v3 last y | last g4 w2 v2 w3 g3 w2 g2 w0 v0 w1 g1 w0 g0");
}

}  // namespace
}  // namespace aten_recompute
