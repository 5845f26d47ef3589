#include "backend/memory/caller_behavior.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kPeak = 10'000;  // bytes

// An output of 10 by 100 floats.
CallerBehavior::Output output(at::Tensor gradient, bool is_freed_before_backward) {
  return {{10, 100}, 4, std::move(gradient), is_freed_before_backward};
}

at::Tensor whole() {
  return at::ones({10, 100});
}

at::Tensor of_a_sum() {
  return at::ones({}).expand({10, 100});
}

TEST(CallerBehavior, WholeGradientsAndHeldOutputsAreAsAssumed) {
  CallerBehavior caller({}, kPeak, true);
  EXPECT_FALSE(caller.is_settled());
  caller.see({output(whole(), false)});
  EXPECT_FALSE(caller.differs());
  EXPECT_TRUE(caller.is_settled());
}

TEST(CallerBehavior, AnExpandedGradientTakesNoMemory) {
  CallerBehavior caller({}, kPeak, true);
  caller.see({output(of_a_sum(), true)});
  EXPECT_TRUE(caller.differs());
  EXPECT_THAT(caller.expanded(), ElementsAre(ElementsAre(true, true)));
  EXPECT_THAT(caller.freed_before_backward(), ElementsAre(true));
}

TEST(CallerBehavior, AnUndefinedGradientTakesNoMemory) {
  CallerBehavior caller({}, kPeak, true);
  caller.see({output({}, false)});
  EXPECT_TRUE(caller.differs());
}

TEST(CallerBehavior, SmallDifferencesDoNotMatterToALargeRegion) {
  CallerBehavior caller({}, 1'000'000, true);
  caller.see({output(of_a_sum(), true)});
  EXPECT_FALSE(caller.differs());
}

TEST(CallerBehavior, AFreedOutputTakesNoMemory) {
  CallerBehavior caller({}, kPeak, true);
  caller.see({output(whole(), true)});
  EXPECT_THAT(caller.freed_before_backward(), ElementsAre(true));
  EXPECT_TRUE(caller.differs());
}

TEST(CallerBehavior, AnUnmeasuredLossMayKeepAsMuchAsTheOutput) {
  CallerBehavior caller({}, kPeak, false);
  caller.see({output(whole(), true)});
  EXPECT_THAT(caller.freed_before_backward(), ElementsAre(false));
  EXPECT_FALSE(caller.differs());
}

TEST(CallerBehavior, ALossIsPlannedForAsItWasMeasured) {
  CallerBehavior caller({}, kPeak, true);
  EXPECT_FALSE(caller.loss_factor());
  caller.see_loss({.factor = 0.5, .held_factor = 1.0, .gradient_bytes = kPeak});
  EXPECT_TRUE(caller.differs());
  EXPECT_EQ(caller.loss_factor(), 0.5);
  EXPECT_EQ(caller.held_factor(), 1.0);
  caller.see({output(whole(), false)});
  EXPECT_TRUE(caller.differs()) << "whatever else the caller does";

  SeenInCalls assumed;
  assumed.caller.loss_factor = 2.0;
  assumed.caller.held_factor = 0.5;
  CallerBehavior next(assumed, kPeak, true);
  next.see_loss({.factor = 1.0, .held_factor = 0.25, .gradient_bytes = kPeak});
  EXPECT_FALSE(next.differs()) << "a smaller loss than the one that was planned for";
  EXPECT_EQ(next.loss_factor(), 2.0);
}

TEST(CallerBehavior, ALossThatIsNothingBesideThePeakChangesNothing) {
  SeenInCalls assumed;
  assumed.caller.loss_factor = 1.0;
  constexpr int64_t kSmall = kPeak / 100;
  CallerBehavior caller(assumed, kPeak, true);
  caller.see_loss({.factor = 1.005, .held_factor = 0.005, .gradient_bytes = kSmall});
  EXPECT_FALSE(caller.differs());
  caller.see_loss({.factor = 1.02, .held_factor = 0.0, .gradient_bytes = kSmall});
  EXPECT_TRUE(caller.differs()) << "a larger part of the peak";

  CallerBehavior next(assumed, kPeak, true);
  next.see_loss(
      {.factor = 1.005, .held_factor = 0.0, .gradient_bytes = kSmall, .exceeds_plan = true});
  EXPECT_TRUE(next.differs()) << "the plan does not keep the budget";
}

TEST(CallerBehavior, OneWholeGradientIsEnoughToPlanForIt) {
  testing::internal::CaptureStderr();
  SeenInCalls assumed;
  assumed.profile.expanded = {{true, true}};
  assumed.caller.freed_before_backward = {true};
  CallerBehavior caller(assumed, kPeak, true);
  caller.see({output(of_a_sum(), true)});
  EXPECT_FALSE(caller.differs());
  caller.see({output(whole(), false)});
  EXPECT_TRUE(caller.differs());
  EXPECT_THAT(caller.expanded(), ElementsAre(ElementsAre(false, false)));
  caller.see({output(of_a_sum(), true)});
  EXPECT_THAT(caller.freed_before_backward(), ElementsAre(false));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("memory_budget may be exceeded by this backward"));
}

TEST(CallerBehavior, WhatASmallCallShowsCountsOnceALargerOneComes) {
  CallerBehavior caller({}, kPeak, true);
  caller.see({{{1, 10}, 4, at::ones({}).expand({1, 10}), true}});
  EXPECT_FALSE(caller.differs()) << "it takes 120 bytes less than assumed";
  caller.see({output(of_a_sum(), true)});
  EXPECT_TRUE(caller.differs());
}

TEST(CallerBehavior, OutputsForOtherRegionsDoNotCount) {
  CallerBehavior caller({}, kPeak, true);
  caller.count_only({});
  caller.count_only({1});
  caller.see({output(of_a_sum(), true), output(whole(), false)});
  EXPECT_FALSE(caller.differs());
  EXPECT_THAT(caller.freed_before_backward(), ElementsAre(false, false));
}

SeenInCalls assuming(double other_calls, size_t num_fewer = 0) {
  SeenInCalls seen;
  seen.caller.other_calls = other_calls;
  seen.caller.num_fewer = num_fewer;
  return seen;
}

TEST(CallerBehavior, MoreCallsBeforeABackwardAreNoticedAtOnce) {
  CallerBehavior caller(assuming(0.0), kPeak, true);
  caller.see_other_calls(0.0);
  EXPECT_FALSE(caller.differs());
  caller.see_other_calls(2.0);
  EXPECT_TRUE(caller.differs());
  EXPECT_EQ(caller.other_calls(), 2.0);
  caller.see({output(whole(), false)});
  EXPECT_TRUE(caller.differs());
  EXPECT_EQ(caller.num_fewer(), 0U);
}

TEST(CallerBehavior, CallsThatGrowAgainGetRoom) {
  CallerBehavior caller(assuming(4.0), kPeak, true);
  caller.see_other_calls(8.0);
  EXPECT_EQ(caller.other_calls(), 10.0);
}

TEST(CallerBehavior, FewerCallsAreNoticedWhereTheyFollowEachOther) {
  CallerBehavior caller(assuming(4.0), kPeak, true);
  for (const double count : {1.0, 0.0, 2.0, 4.0, 1.0, 2.0, 0.0}) {
    caller.see_other_calls(count);
    EXPECT_FALSE(caller.differs()) << count;
  }
  caller.see_other_calls(1.0);
  EXPECT_TRUE(caller.differs());
  EXPECT_EQ(caller.other_calls(), 2.0);  // the most of the last four
  EXPECT_EQ(caller.num_fewer(), 1U);
}

TEST(CallerBehavior, RetainedGraphsAreNoticed) {
  CallerBehavior caller(assuming(0.0), kPeak, true);
  caller.see_retained(0.0);
  EXPECT_FALSE(caller.differs());
  caller.see_retained(1.0);
  caller.see_retained(2.0);
  EXPECT_TRUE(caller.differs());
  EXPECT_EQ(caller.retained(), 2.0);
}

TEST(CallerBehavior, EachTimeItTakesTwiceAsManyStepsWithFewerCalls) {
  CallerBehavior caller(assuming(4.0, /*num_fewer=*/3), kPeak, true);
  for (int step = 0; step < 31; ++step)
    caller.see_other_calls(0.0);
  EXPECT_FALSE(caller.differs());
  caller.see_other_calls(1.0);
  EXPECT_TRUE(caller.differs());
  EXPECT_EQ(caller.other_calls(), 1.0);
  EXPECT_EQ(caller.num_fewer(), 4U);
}

// Plans for rollouts leave room, which is no reason to call the longest ones short.
TEST(CallerBehavior, NumbersNearTheLargestAreNotFewer) {
  CallerBehavior caller(assuming(10.0), kPeak, true);
  for (int step = 0; step < 20; ++step)
    caller.see_other_calls(step % 4 == 0 ? 7.0 : 1.0);
  EXPECT_FALSE(caller.differs());
}
}  // namespace
}  // namespace aten_recompute
