#include "runtime/arena/block_plan.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/cpp/support/random_blocks.h"

namespace aten_recompute {
namespace {

constexpr double kLong = 600;  // seconds: the search ends by itself much earlier

TEST(BlockPlan, PlacesBlocksThatMeetApart) {
  StepRecord record;
  const auto key = [](size_t instruction) { return BlockKey{PassKey::of(0, 0), instruction, 0}; };
  const auto a = record.add(key(0), 128), b = record.add(key(1), 256);
  record.end(a);
  const auto c = record.add(key(2), 64);
  record.end(b);
  record.end(c);
  record.add(key(3), 64);
  record.finish();
  const BlockPlan plan(record.blocks());
  EXPECT_EQ(plan.arena_bytes(), 384);
  EXPECT_EQ(plan.alive_bytes(), 384);
  const auto *first = plan.find(key(0)), *second = plan.find(key(1)), *third = plan.find(key(2));
  EXPECT_TRUE(first->offset + 128 <= second->offset || second->offset + 256 <= first->offset);
  EXPECT_TRUE(third->offset + 64 <= second->offset || second->offset + 256 <= third->offset);
  EXPECT_EQ(plan.find(key(3))->offset, -1);
  EXPECT_EQ(plan.find(key(4)), nullptr);
  EXPECT_EQ(plan.find({PassKey::of(0, 0), 1, 1}), nullptr);
  EXPECT_EQ(plan.find({PassKey::of(1, 0), 0, 0}), nullptr);
}

TEST(BlockPlan, MakesRoomForLargerBlocks) {
  StepRecord record;
  const BlockKey key{PassKey::of(0, 1), 0, 0};
  record.end(record.add(key, 64));
  record.finish();
  BlockPlan plan(record.blocks());
  EXPECT_EQ(plan.enlarged(), nullptr);
  plan.note_larger(*plan.find(key), 640);
  plan.note_larger(*plan.find(key), 320);
  EXPECT_EQ(plan.enlarged()->find(key)->bytes, 640);
}

// The instructions of one pass allocate a block each, in the order of the blocks.
std::vector<StepRecord::Block> recorded(const std::vector<Block>& blocks) {
  std::vector<StepRecord::Block> result;
  for (size_t i = 0; i < blocks.size(); ++i)
    result.push_back({{PassKey::of(0, 0), i, 0}, blocks[i].bytes, blocks[i].begin, blocks[i].end});
  return result;
}

TEST(BlockPlan, ASearchThatGoesOnFindsASmallerArenaOnce) {
  BlockPlan plan(recorded(random_blocks(10, 250)));
  const auto better = plan.improved(kLong);
  ASSERT_NE(better, nullptr);
  EXPECT_LT(better->arena_bytes(), plan.arena_bytes());
  EXPECT_GE(better->arena_bytes(), better->alive_bytes());
  EXPECT_EQ(better->num_blocks(), plan.num_blocks());
  EXPECT_EQ(better->improved(kLong), nullptr);
  EXPECT_EQ(plan.improved(kLong), nullptr);
}

TEST(BlockPlan, FindsPlacesForLargeBlocksInFewTries) {
  constexpr unsigned kMostBytes = 1'500'000;
  const BlockPlan plan(recorded(random_blocks(10, 250, kMostBytes)));
  EXPECT_GT(plan.arena_bytes(), plan.alive_bytes());
}

TEST(BlockPlan, APlanThatWasImprovedMakesRoomForWhatWasNotedBefore) {
  BlockPlan plan(recorded(random_blocks(10, 250)));
  const BlockKey key{PassKey::of(0, 0), 3, 0};
  plan.note_larger(*plan.find(key), 12'345);
  const auto better = plan.improved(kLong);
  ASSERT_NE(better, nullptr);
  EXPECT_LT(better->find(key)->bytes, 12'345);
  EXPECT_EQ(better->enlarged()->find(key)->bytes, 12'345);
}

}  // namespace
}  // namespace aten_recompute
