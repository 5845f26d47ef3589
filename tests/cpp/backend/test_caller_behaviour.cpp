#include "backend/caller_behaviour.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kPeak = 10'000;  // bytes

// An output of 10 by 100 floats.
CallerBehaviour::Output output(at::Tensor gradient, bool is_freed_before_backward) {
  return {{10, 100}, 4, std::move(gradient), is_freed_before_backward};
}

at::Tensor whole() {
  return at::ones({10, 100});
}

at::Tensor of_a_sum() {
  return at::ones({}).expand({10, 100});
}

TEST(CallerBehaviour, WholeGradientsAndHeldOutputsAreAsAssumed) {
  CallerBehaviour caller({}, kPeak, true);
  EXPECT_FALSE(caller.is_settled());
  caller.see({output(whole(), false)});
  EXPECT_FALSE(caller.differs());
  EXPECT_TRUE(caller.is_settled());
}

TEST(CallerBehaviour, AnExpandedGradientTakesNoMemory) {
  CallerBehaviour caller({}, kPeak, true);
  caller.see({output(of_a_sum(), true)});
  EXPECT_TRUE(caller.differs());
  EXPECT_THAT(caller.expanded(), ElementsAre(ElementsAre(true, true)));
  EXPECT_THAT(caller.freed_before_backward(), ElementsAre(true));
}

TEST(CallerBehaviour, AnUndefinedGradientTakesNoMemory) {
  CallerBehaviour caller({}, kPeak, true);
  caller.see({output({}, false)});
  EXPECT_TRUE(caller.differs());
}

TEST(CallerBehaviour, SmallDifferencesDoNotMatterToALargeRegion) {
  CallerBehaviour caller({}, 1'000'000, true);
  caller.see({output(of_a_sum(), true)});
  EXPECT_FALSE(caller.differs());
}

TEST(CallerBehaviour, AFreedOutputTakesNoMemory) {
  CallerBehaviour caller({}, kPeak, true);
  caller.see({output(whole(), true)});
  EXPECT_THAT(caller.freed_before_backward(), ElementsAre(true));
  EXPECT_TRUE(caller.differs());
}

TEST(CallerBehaviour, AnUnmeasuredLossMayKeepAsMuchAsTheOutput) {
  CallerBehaviour caller({}, kPeak, false);
  caller.see({output(whole(), true)});
  EXPECT_THAT(caller.freed_before_backward(), ElementsAre(false));
  EXPECT_FALSE(caller.differs());
}

TEST(CallerBehaviour, ALossIsPlannedForAsItWasMeasured) {
  CallerBehaviour caller({}, kPeak, true);
  EXPECT_FALSE(caller.loss_factor());
  caller.see_loss(0.5, 1.0);
  EXPECT_TRUE(caller.differs());
  EXPECT_EQ(caller.loss_factor(), 0.5);
  EXPECT_EQ(caller.held_factor(), 1.0);
  caller.see({output(whole(), false)});
  EXPECT_TRUE(caller.differs()) << "whatever else the caller does";

  SeenInCalls assumed;
  assumed.loss_factor = 2.0;
  assumed.held_factor = 0.5;
  CallerBehaviour next(assumed, kPeak, true);
  next.see_loss(1.0, 0.25);
  EXPECT_FALSE(next.differs()) << "a smaller loss than the one that was planned for";
  EXPECT_EQ(next.loss_factor(), 2.0);
}

TEST(CallerBehaviour, OneWholeGradientIsEnoughToPlanForIt) {
  testing::internal::CaptureStderr();
  SeenInCalls assumed;
  assumed.expanded = {{true, true}};
  assumed.freed_before_backward = {true};
  CallerBehaviour caller(assumed, kPeak, true);
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

TEST(CallerBehaviour, WhatASmallCallShowsCountsOnceALargerOneComes) {
  CallerBehaviour caller({}, kPeak, true);
  caller.see({{{1, 10}, 4, at::ones({}).expand({1, 10}), true}});
  EXPECT_FALSE(caller.differs()) << "it takes 120 bytes less than assumed";
  caller.see({output(of_a_sum(), true)});
  EXPECT_TRUE(caller.differs());
}

TEST(CallerBehaviour, OutputsForOtherRegionsDoNotCount) {
  CallerBehaviour caller({}, kPeak, true);
  caller.count_only({});
  caller.count_only({1});
  caller.see({output(of_a_sum(), true), output(whole(), false)});
  EXPECT_FALSE(caller.differs());
  EXPECT_THAT(caller.freed_before_backward(), ElementsAre(false, false));
}

}  // namespace
}  // namespace aten_recompute
