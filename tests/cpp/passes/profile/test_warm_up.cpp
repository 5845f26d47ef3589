#include "passes/profile/warm_up.h"

#include <gtest/gtest.h>

namespace aten_recompute {
namespace {

TEST(WarmUp, TheFactorIsTheMedianOfSomeRunsOfAnOperator) {
  WarmUp warm_up;
  for (const double second : {0.5, 0.9, 0.8, 3.0}) {
    warm_up.learn("mm", 1.0, second);
    EXPECT_FALSE(warm_up.is_known("mm"));
  }
  warm_up.learn("mm", 2.0, 0.2);
  ASSERT_TRUE(warm_up.is_known("mm"));
  EXPECT_FALSE(warm_up.is_known("relu"));
  EXPECT_DOUBLE_EQ(warm_up.without("mm", 4.0), 3.2);
}

TEST(WarmUp, ASecondRunIsNeverAssumedToBeSlower) {
  WarmUp warm_up;
  for (int i = 0; i < 5; ++i)
    warm_up.learn("mm", 0.0, 1.0);
  EXPECT_DOUBLE_EQ(warm_up.without("mm", 4.0), 4.0);
}

}  // namespace
}  // namespace aten_recompute
