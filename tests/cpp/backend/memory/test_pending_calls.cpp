#include "backend/memory/pending_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace aten_recompute {
namespace {

std::shared_ptr<CallerBehavior> caller() {
  return std::make_shared<CallerBehavior>(SeenInCalls(), /*peak_bytes=*/10'000, true);
}

TEST(PendingCalls, CountsCallsBeforeTheFirstBackward) {
  const auto calls = std::make_shared<PendingCalls>();
  const auto plan = caller();
  auto first = calls->add({plan, 100.0, 100.0});
  auto second = calls->add({plan, 100.0, 100.0});
  auto third = calls->add({plan, 100.0, 100.0});
  const auto others = third->begin_backward();
  EXPECT_EQ(others.num_earlier, 2);
  EXPECT_FALSE(others.has_later);
  EXPECT_EQ(others.like_planned, 2.0);
  EXPECT_EQ(plan->other_calls(), 2.0);
  third.reset();
  // They were part of the same step.
  EXPECT_EQ(second->begin_backward().num_earlier, 1);
  second.reset();
  EXPECT_EQ(first->begin_backward().num_earlier, 0);
  EXPECT_TRUE(first->begin_backward().has_later);
  EXPECT_EQ(first->begin_backward().like_planned, 2.0);
  EXPECT_EQ(plan->other_calls(), 2.0);
}

TEST(PendingCalls, ACallThatIsGoneDoesNotWait) {
  const auto calls = std::make_shared<PendingCalls>();
  const auto plan = caller();
  calls->add({plan, 100.0, 100.0}).reset();
  const auto second = calls->add({plan, 100.0, 100.0});
  EXPECT_EQ(second->begin_backward().num_earlier, 0);
  EXPECT_FALSE(plan->differs());
}

// Such as a result that a program looked at and keeps.
TEST(PendingCalls, ACallFromBeforeAnotherBackwardIsNoPartOfTheStep) {
  const auto calls = std::make_shared<PendingCalls>();
  const auto plan = caller();
  const auto kept = calls->add({plan, 100.0, 100.0});
  EXPECT_EQ(calls->add({plan, 100.0, 100.0})->begin_backward().num_earlier, 1);
  EXPECT_EQ(calls->add({plan, 100.0, 100.0})->begin_backward().num_earlier, 0);
}

TEST(PendingCalls, ThreadsDoNotWaitForEachOther) {
  const auto calls = std::make_shared<PendingCalls>();
  const auto plan = caller();
  const auto here = calls->add({plan, 100.0, 100.0});
  std::thread([&] {
    const auto there = calls->add({plan, 100.0, 100.0});
    EXPECT_EQ(there->begin_backward().num_earlier, 0);
  }).join();
  EXPECT_EQ(here->begin_backward().num_earlier, 0);
  EXPECT_FALSE(plan->differs());
}

TEST(PendingCalls, CallsOfOtherSizesArePartsOfOne) {
  const auto calls = std::make_shared<PendingCalls>();
  const auto large = caller();
  const auto small = caller();
  const auto first = calls->add({large, 400.0, 400.0});
  const auto second = calls->add({small, 100.0, 100.0});
  const auto third = calls->add({large, 200.0, 400.0});  // of half the size, under the same plan
  EXPECT_EQ(third->begin_backward().like_planned, 500.0 / 400.0);
  EXPECT_EQ(large->other_calls(), 500.0 / 400.0);
  EXPECT_EQ(small->other_calls(), 6.0);
}

TEST(PendingCalls, ACallThatKeepsNothingNeedsNoRoom) {
  const auto calls = std::make_shared<PendingCalls>();
  const auto plan = caller();
  const auto first = calls->add({plan, 0.0, 0.0});
  const auto second = calls->add({plan, 0.0, 0.0});
  EXPECT_EQ(second->begin_backward().like_planned, 0.0);
  EXPECT_FALSE(plan->differs());
}

}  // namespace
}  // namespace aten_recompute
