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

// A generator waits while its critic is trained with what it made.
TEST(PendingCalls, ACallMayWaitForSeveralBackwards) {
  const auto calls = std::make_shared<PendingCalls>();
  const auto generator = caller();
  const auto critic = caller();
  const auto made = calls->add({generator, 100.0, 100.0});
  EXPECT_EQ(calls->add({critic, 200.0, 200.0})->begin_backward().num_earlier, 1);
  const auto last = calls->add({critic, 200.0, 200.0});
  EXPECT_EQ(last->begin_backward().num_earlier, 1);
  EXPECT_EQ(critic->other_calls(), 0.5);
  EXPECT_EQ(generator->other_calls(), 2.0);
  EXPECT_EQ(made->begin_backward().num_earlier, 0);
  EXPECT_TRUE(made->begin_backward().has_later);
}

TEST(PendingCalls, AResultThatAProgramKeepsDoesNotCountForEver) {
  const auto calls = std::make_shared<PendingCalls>();
  const auto plan = caller();
  const auto kept = calls->add({plan, 100.0, 100.0});
  size_t num_steps = 0;
  while (calls->add({plan, 100.0, 100.0})->begin_backward().num_earlier > 0 && num_steps < 100)
    ++num_steps;
  EXPECT_EQ(num_steps, 32U);
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
  EXPECT_EQ(third->begin_backward().like_planned, 300.0 / 400.0);
  EXPECT_EQ(large->other_calls(), 300.0 / 400.0);  // what its largest call has beside it
  EXPECT_EQ(small->other_calls(), 6.0);
}

TEST(PendingCalls, TheFirstOfTheEarlierCallsIsTold) {
  const auto calls = std::make_shared<PendingCalls>();
  const auto plan = caller();
  calls->add({plan, 100.0, 100.0}).reset();
  const auto number = calls->next_number();
  const auto first = calls->add({plan, 100.0, 100.0});
  const auto second = calls->add({plan, 100.0, 100.0});
  const auto third = calls->add({plan, 100.0, 100.0});
  const auto others = third->begin_backward();
  EXPECT_EQ(others.num_earlier, 2);
  EXPECT_EQ(others.first_earlier, number);
  EXPECT_EQ(first->begin_backward().num_earlier, 0);
}

// A result that is a target has no gradient, and its call is gone before the backward.
TEST(PendingCalls, ACallThatWasThereBesideAnotherCounts) {
  const auto calls = std::make_shared<PendingCalls>();
  const auto plan = caller();
  calls->add({plan, 100.0, 100.0}).reset();  // before the next one: it was never beside another
  auto target = calls->add({plan, 100.0, 100.0});
  const auto second = calls->add({plan, 100.0, 100.0});
  target.reset();
  const auto third = calls->add({plan, 50.0, 100.0});
  third->begin_backward();
  EXPECT_EQ(plan->other_calls(), 1.0);
}

// Whatever a small head behind a large encoder makes again, the encoder keeps as much.
TEST(PendingCalls, APlanDoesNotMakeRoomForMuchLargerOnes) {
  const auto calls = std::make_shared<PendingCalls>();
  const auto encoder = caller();
  const auto head = caller();
  const auto first = calls->add({encoder, 1000.0, 1000.0});
  const auto second = calls->add({head, 10.0, 10.0});
  second->begin_backward();
  EXPECT_FALSE(head->differs());
  // So few bytes make no other plan of the encoder either.
  EXPECT_EQ(encoder->other_calls(), 0.0);
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
