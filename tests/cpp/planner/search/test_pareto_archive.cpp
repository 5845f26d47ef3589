#include "planner/search/pareto_archive.h"

#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

Simulation costs(int64_t peak_bytes, double seconds) {
  Simulation simulation;
  simulation.peak_bytes = peak_bytes;
  simulation.recompute_seconds = seconds;
  return simulation;
}

// An archive whose ranges are 10 bytes wide. What plans decide does not matter to it.
struct ArchiveTest : ::testing::Test {
  bool offer(int64_t peak_bytes, double seconds) {
    return archive.offer(plan, costs(peak_bytes, seconds));
  }

  RetentionPlan plan{Problem()};
  ParetoArchive archive{3999};
};

TEST_F(ArchiveTest, HasNothingAtFirst) {
  EXPECT_EQ(archive.fastest(4000), nullptr);
  EXPECT_EQ(archive.leanest(), nullptr);
  EXPECT_EQ(archive.leanest(100.0), nullptr);
  EXPECT_TRUE(archive.frontier().empty());
}

TEST_F(ArchiveTest, TakesOnlyPlansThatAreFasterOrLeaner) {
  EXPECT_TRUE(offer(1000, 5.0));
  EXPECT_FALSE(offer(2000, 5.0)) << "as fast as a plan of a smaller peak";
  EXPECT_TRUE(offer(2000, 4.0));
  EXPECT_TRUE(offer(500, 9.0));
  EXPECT_FALSE(offer(1001, 6.0));
  EXPECT_TRUE(offer(500, 8.0)) << "as lean, but faster";
}

TEST_F(ArchiveTest, FastestFitsAndIsTheFastestThatDoes) {
  offer(1000, 5.0);
  offer(2000, 4.0);
  EXPECT_EQ(archive.fastest(999), nullptr);
  EXPECT_EQ(archive.fastest(1999)->simulation.recompute_seconds, 5.0);
  EXPECT_EQ(archive.fastest(2000)->simulation.recompute_seconds, 4.0);
}

TEST_F(ArchiveTest, LeanestKeepsTheTime) {
  offer(1000, 5.0);
  offer(2000, 4.0);
  EXPECT_EQ(archive.leanest()->simulation.peak_bytes, 1000);
  EXPECT_EQ(archive.leanest(4.5)->simulation.peak_bytes, 2000);
  EXPECT_EQ(archive.leanest(3.9), nullptr);
}

TEST_F(ArchiveTest, LeanestHasTheSmallestPeakOfThoseThatTakeAsLong) {
  offer(1005, 5.0);
  offer(1001, 5.0);
  EXPECT_EQ(archive.leanest(5.0)->simulation.peak_bytes, 1001);
}

TEST_F(ArchiveTest, TheFrontierFallsInPeakAndRisesInTime) {
  offer(3000, 1.0);
  offer(1000, 5.0);
  offer(2000, 6.0);
  offer(1500, 4.0);
  const auto frontier = archive.frontier();
  ASSERT_EQ(frontier.size(), 3U);
  EXPECT_EQ(frontier[0].simulation.peak_bytes, 3000);
  EXPECT_EQ(frontier[1].simulation.peak_bytes, 1500);
  EXPECT_EQ(frontier[2].simulation.peak_bytes, 1000);
}

TEST_F(ArchiveTest, MergingTakesWhatIsBetterInEither) {
  offer(1000, 5.0);
  offer(2000, 4.0);
  ParetoArchive other(3999);
  other.offer(plan, costs(2000, 3.0));
  other.offer(plan, costs(500, 9.0));
  archive.merge(other);
  EXPECT_EQ(archive.leanest()->simulation.peak_bytes, 500);
  EXPECT_EQ(archive.fastest(1500)->simulation.recompute_seconds, 5.0);
  EXPECT_EQ(archive.fastest(2000)->simulation.recompute_seconds, 3.0);
}

}  // namespace
}  // namespace aten_recompute
