#include "backend/caller_behaviour.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kPeak = 10'000;  // bytes

// Of 10 by 100 floats.
CallerBehaviour::Output output(at::Tensor gradient, bool is_let_go) {
  return {{10, 100}, 4, std::move(gradient), is_let_go};
}

at::Tensor whole() {
  return at::ones({10, 100});
}

at::Tensor of_a_sum() {
  return at::ones({}).expand({10, 100});
}

TEST(CallerBehaviour, WholeGradientsAndHeldOutputsAreAsAssumed) {
  CallerBehaviour caller({}, kPeak);
  EXPECT_FALSE(caller.is_settled());
  caller.see({output(whole(), false)});
  EXPECT_FALSE(caller.differs());
  EXPECT_TRUE(caller.is_settled());
}

TEST(CallerBehaviour, AGradientOfASumTakesNoMemory) {
  CallerBehaviour caller({}, kPeak);
  caller.see({output(of_a_sum(), true)});
  EXPECT_TRUE(caller.differs());
  EXPECT_THAT(caller.expanded(), ElementsAre(ElementsAre(true, true)));
  EXPECT_THAT(caller.let_go(), ElementsAre(true));
}

TEST(CallerBehaviour, NeitherDoesOneThatIsNotThere) {
  CallerBehaviour caller({}, kPeak);
  caller.see({output({}, false)});
  EXPECT_TRUE(caller.differs());
}

TEST(CallerBehaviour, OfALargeRegionItDoesNotMatter) {
  CallerBehaviour caller({}, 1'000'000);
  caller.see({output(of_a_sum(), true)});
  EXPECT_FALSE(caller.differs());
}

TEST(CallerBehaviour, AnOtherLossMayHoldMoreThanTheOutput) {
  CallerBehaviour caller({}, kPeak);
  caller.see({output(whole(), true)});
  EXPECT_THAT(caller.let_go(), ElementsAre(false));
  EXPECT_FALSE(caller.differs());
}

TEST(CallerBehaviour, OneWholeGradientIsEnoughToPlanForIt) {
  testing::internal::CaptureStderr();
  CallerBehaviour caller({{}, {{true, true}}, {true}}, kPeak);
  caller.see({output(of_a_sum(), true)});
  EXPECT_FALSE(caller.differs());
  caller.see({output(whole(), false)});
  EXPECT_TRUE(caller.differs());
  EXPECT_THAT(caller.expanded(), ElementsAre(ElementsAre(false, false)));
  caller.see({output(of_a_sum(), true)});
  EXPECT_THAT(caller.let_go(), ElementsAre(false));
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("memory_budget may be exceeded by this backward"));
}

TEST(CallerBehaviour, OutputsForOtherRegionsDoNotCount) {
  CallerBehaviour caller({}, kPeak);
  caller.count_only({});
  caller.count_only({1});
  caller.see({output(of_a_sum(), true), output(whole(), true)});
  EXPECT_FALSE(caller.differs());
  EXPECT_THAT(caller.let_go(), ElementsAre(false, false));
}

}  // namespace
}  // namespace aten_recompute
