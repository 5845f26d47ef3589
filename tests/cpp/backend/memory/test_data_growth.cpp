#include "backend/memory/data_growth.h"

#include <gtest/gtest.h>

namespace aten_recompute {
namespace {

TEST(DataGrowth, DataThatOnlyMoveDoNotGrow) {
  EXPECT_EQ(growth_of({{100, 8}, {100, 8}}, {{100, 8}, {100, 8}}), DataGrowth::kNone);
  EXPECT_EQ(growth_of({{120, 8}, {80, 8}}, {{100, 8}, {100, 8}}), DataGrowth::kNone);
  EXPECT_EQ(growth_of({{10, 8}, {20, 8}}, {{100, 8}, {100, 8}}), DataGrowth::kNone);
}

TEST(DataGrowth, TheTotalMayGrowByThreePercent) {
  EXPECT_EQ(growth_of({{102, 8}, {102, 8}}, {{100, 8}, {100, 8}}), DataGrowth::kNone);
  EXPECT_EQ(growth_of({{104, 8}, {104, 8}}, {{100, 8}, {100, 8}}), DataGrowth::kTotal);
}

TEST(DataGrowth, OneTensorMayGrowByHalf) {
  EXPECT_EQ(growth_of({{149, 8}, {51, 8}}, {{100, 8}, {100, 8}}), DataGrowth::kNone);
  EXPECT_EQ(growth_of({{151, 8}, {49, 8}}, {{100, 8}, {100, 8}}), DataGrowth::kOfOne);
  // A small one does not decide the peak.
  EXPECT_EQ(growth_of({{1000, 8}, {4}}, {{1000, 8}, {1}}), DataGrowth::kNone);
}

TEST(DataGrowth, WhatWasNotAssumedIsIgnored) {
  EXPECT_EQ(growth_of({{100}, {500}}, {{100}}), DataGrowth::kNone);
  EXPECT_EQ(growth_of({{5}}, {}), DataGrowth::kNone);
}

TEST(DataGrowth, MemoryThatGrowsWithTheSquareHasRoom) {
  EXPECT_EQ(growth_of({{119, 8}}, {{100, 8}}, 1.44), DataGrowth::kNone);
  EXPECT_EQ(growth_of({{121, 8}}, {{100, 8}}, 1.44), DataGrowth::kTotal);
  EXPECT_EQ(growth_of({{102, 8}}, {{100, 8}}, 1.0), DataGrowth::kNone);
}

TEST(DataGrowth, WhatIsNotDecidedYetIsAsAssumed) {
  EXPECT_EQ(growth_of({{104, 8}}, {{100, 8}, {100, 8}}), DataGrowth::kNone);
  EXPECT_EQ(growth_of({{108, 8}}, {{100, 8}, {100, 8}}), DataGrowth::kTotal);
  // A first tensor is small beside a large one that is not decided yet.
  EXPECT_EQ(growth_of({{2}}, {{1}, {1000, 8}}), DataGrowth::kNone);
}

TEST(DataGrowth, OtherSizesAreSmallerOrLargerByTheSameMeasures) {
  EXPECT_FALSE(are_other_sizes({{98, 8}, {98, 8}}, {{100, 8}, {100, 8}}));
  EXPECT_FALSE(are_other_sizes({{120, 8}, {80, 8}}, {{100, 8}, {100, 8}}));
  EXPECT_TRUE(are_other_sizes({{104, 8}, {104, 8}}, {{100, 8}, {100, 8}}));
  EXPECT_TRUE(are_other_sizes({{96, 8}, {96, 8}}, {{100, 8}, {100, 8}}));
  EXPECT_TRUE(are_other_sizes({{160, 8}, {40, 8}}, {{100, 8}, {100, 8}}));
  EXPECT_FALSE(are_other_sizes({}, {}));
}

TEST(DataGrowth, TheNextPlanAssumesWhatACallHasShown) {
  EXPECT_EQ(sizes_after(DataGrowth::kOfOne, {{3, 5}, {1}, {7}}, {{4, 2}, {2, 2}}),
            (DataSizes{{4, 5}, {1}, {7}}));
  EXPECT_EQ(sizes_after(DataGrowth::kTotal, {{3, 9}}, {{4, 5}}), (DataSizes{{3, 9}}));
  // What the call had not decided yet is left to its data.
  EXPECT_EQ(sizes_after(DataGrowth::kTotal, {{9}}, {{4}, {6, 2}}), (DataSizes{{9}}));
}

}  // namespace
}  // namespace aten_recompute
