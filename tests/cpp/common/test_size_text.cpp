#include "common/size_text.h"

#include <gtest/gtest.h>

namespace aten_recompute {
namespace {

TEST(SizeText, HasTheUnitThatFits) {
  EXPECT_EQ(nearest_size(1000), "1000 B");
  EXPECT_EQ(nearest_size(1536), "1.5 KiB");
  EXPECT_EQ(nearest_size(3 << 20), "3.0 MiB");
  EXPECT_EQ(nearest_size((3 << 20) + (1 << 18), 2), "3.25 MiB");
}

TEST(SizeText, RoundsToTheNearestOrUpwards) {
  EXPECT_EQ(nearest_size((1 << 20) + 1), "1.0 MiB");
  EXPECT_EQ(size_at_least((1 << 20) + 1), "1.1 MiB");
  EXPECT_EQ(size_at_least(1 << 20), "1.0 MiB");
}

}  // namespace
}  // namespace aten_recompute
