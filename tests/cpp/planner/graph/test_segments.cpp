#include "planner/graph/segments.h"

#include <algorithm>
#include <random>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Segments of equal size whose separators cost `separator` each.
std::vector<Segment> equal_segments(size_t count, int64_t saved, int64_t separator) {
  std::vector<Segment> segments(count, Segment{saved, separator});
  segments.back().separator_bytes = 0;
  return segments;
}

// Returns the cost that choose_separators() minimizes.
int64_t cost_of(const std::vector<Segment>& segments, const std::vector<bool>& keep) {
  int64_t kept = 0;
  int64_t joined = 0;
  int64_t largest = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    joined += segments[i].saved_bytes;
    largest = std::max(largest, joined);
    if (keep[i]) {
      kept += segments[i].separator_bytes;
      joined = 0;
    }
  }
  return kept + largest;
}

TEST(Segments, AreChosenAsWellAsByTryingAllChoices) {
  constexpr size_t kCount = 9;
  std::mt19937 random(20);
  for (int round = 0; round < 200; ++round) {
    std::vector<Segment> segments(kCount);
    for (auto& segment : segments) {
      segment = {static_cast<int64_t>(random() % 30), static_cast<int64_t>(random() % 20)};
    }
    segments.back().separator_bytes = 0;
    int64_t best = cost_of(segments, std::vector<bool>(kCount, false));
    for (unsigned choice = 0; choice < 1U << (kCount - 1); ++choice) {
      std::vector<bool> keep(kCount, false);
      for (size_t i = 0; i + 1 < kCount; ++i) {
        keep[i] = ((choice >> i) & 1U) != 0;
      }
      best = std::min(best, cost_of(segments, keep));
    }
    const auto chosen = choose_separators(segments, std::nullopt);
    EXPECT_FALSE(chosen.back());
    EXPECT_EQ(cost_of(segments, chosen), best) << "round " << round;
  }
}

// Largest segment, number of segments, and bytes of kept separators: what a choice with a count
// makes as small as possible, in this order.
std::tuple<int64_t, int64_t, int64_t> rank_of(const std::vector<Segment>& segments,
                                              const std::vector<bool>& keep) {
  const int64_t parts = 1 + std::count(keep.begin(), keep.end(), true);
  int64_t kept = 0;
  for (size_t i = 0; i < segments.size(); ++i)
    kept += keep[i] ? segments[i].separator_bytes : 0;
  return {cost_of(segments, keep) - kept, parts, kept};
}

TEST(Segments, WithACountNoOtherChoiceIsBetter) {
  constexpr size_t kCount = 8;
  std::mt19937 random(21);
  for (int round = 0; round < 200; ++round) {
    std::vector<Segment> segments(kCount);
    for (auto& segment : segments)
      segment = {static_cast<int64_t>(random() % 6), static_cast<int64_t>(random() % 20)};
    segments.back().separator_bytes = 0;
    for (int64_t count = 1; count <= 5; ++count) {
      auto best = rank_of(segments, std::vector<bool>(kCount, false));
      for (unsigned choice = 0; choice < 1U << (kCount - 1); ++choice) {
        std::vector<bool> keep(kCount, false);
        for (size_t i = 0; i + 1 < kCount; ++i)
          keep[i] = ((choice >> i) & 1U) != 0;
        const auto rank = rank_of(segments, keep);
        if (std::get<1>(rank) <= count)
          best = std::min(best, rank);
      }
      EXPECT_EQ(rank_of(segments, choose_separators(segments, count)), best)
          << "round " << round << ", count " << count;
    }
  }
}

TEST(Segments, NoSegmentsGiveNoFlags) {
  EXPECT_THAT(choose_separators({}, std::nullopt), IsEmpty());
}

TEST(Segments, OneSegmentHasNothingToKeep) {
  EXPECT_THAT(choose_separators({{100, 0}}, std::nullopt), ElementsAre(false));
}

// Four segments of 16 bytes, separators of 4. Keeping none: 64. One in the middle: 4 + 32 = 36.
// All three: 12 + 16 = 28. (Two: 8 + 32 = 40.)
TEST(Segments, CheapSeparatorsAreAllKept) {
  EXPECT_THAT(choose_separators(equal_segments(4, 16, 4), std::nullopt),
              ElementsAre(true, true, true, false));
}

// With separators of 10 bytes, keeping none costs 64, one 10 + 32 = 42, all 30 + 16 = 46.
TEST(Segments, FewExpensiveSeparatorsAreKept) {
  EXPECT_THAT(choose_separators(equal_segments(4, 16, 10), std::nullopt),
              ElementsAre(false, true, false, false));
}

// With separators of 40 bytes, keeping none costs 64 and one 40 + 32 = 72.
TEST(Segments, SeparatorsThatCostMoreThanTheySaveAreNotKept) {
  EXPECT_THAT(choose_separators(equal_segments(4, 16, 40), std::nullopt),
              ElementsAre(false, false, false, false));
}

// The square root rule: n = 16 segments whose separators cost as much as they save (s = 1): k
// segments of 16 / k each cost (k - 1) + 16 / k, which is smallest at k = 4: 3 + 4 = 7.
TEST(Segments, EqualLayersAreCutIntoTheSquareRootOfTheirNumber) {
  const auto keep = choose_separators(equal_segments(16, 1, 1), std::nullopt);
  EXPECT_THAT(keep, ElementsAre(false, false, false, true, false, false, false, true, false, false,
                                false, true, false, false, false, false));
}

// The big segment (100) cannot be split, so nothing is won by keeping separators among the small
// ones: {100 | 1 + 1 + 1} costs 5 + 100 = 105, more than all of it together, 103.
TEST(Segments, SeparatorsAmongSmallSegmentsDoNotHelpBesideALargeOne) {
  EXPECT_THAT(choose_separators({{100, 5}, {1, 5}, {1, 5}, {1, 0}}, std::nullopt),
              ElementsAre(false, false, false, false));
  // With small ones of 10, {100 | 30} costs 105 instead of 130.
  EXPECT_THAT(choose_separators({{100, 5}, {10, 5}, {10, 5}, {10, 0}}, std::nullopt),
              ElementsAre(true, false, false, false));
}

// The two separators differ by a segment that saves nothing, so the one of 1 byte is kept and not
// the one of 50. The cost is 1 + 16 = 17.
TEST(Segments, TheSmallestOfSeveralEquivalentSeparatorsIsKept) {
  const std::vector<Segment> segments{{16, 1}, {0, 50}, {16, 0}};
  EXPECT_THAT(choose_separators(segments, std::nullopt), ElementsAre(true, false, false));
  EXPECT_THAT(choose_separators(segments, 2), ElementsAre(true, false, false));
  const std::vector<Segment> reversed{{16, 50}, {0, 1}, {16, 0}};
  EXPECT_THAT(choose_separators(reversed, std::nullopt), ElementsAre(false, true, false));
}

// Three stretches of at most 20: 10 + 10 | 10 + 10 | 10 costs 9 + 9; 10 | 10 + 10 | 10 + 10 costs 1
// + 1.
TEST(Segments, SmallSeparatorsArePreferred) {
  const std::vector<Segment> segments{{10, 1}, {10, 9}, {10, 1}, {10, 9}, {10, 0}};
  EXPECT_THAT(choose_separators(segments, 3), ElementsAre(true, false, true, false, false));
}

TEST(Segments, ACountOfOneKeepsNothing) {
  EXPECT_THAT(choose_separators(equal_segments(4, 16, 4), 1),
              ElementsAre(false, false, false, false));
}

// Two segments of 4, 2, 8, 1, 3 bytes: 4 + 2 | 8 + 1 + 3 has maximum 12, 4 + 2 + 8 | 1 + 3 has 14.
TEST(Segments, WithACountTheLargestSegmentIsAsSmallAsPossible) {
  const std::vector<Segment> segments{{4, 1}, {2, 1}, {8, 1}, {1, 1}, {3, 0}};
  EXPECT_THAT(choose_separators(segments, 2), ElementsAre(false, true, false, false, false));
  // Three: 4 + 2 | 8 | 1 + 3 with maximum 8, which no more segments make smaller.
  EXPECT_THAT(choose_separators(segments, 3), ElementsAre(false, true, true, false, false));
  EXPECT_THAT(choose_separators(segments, 4), ElementsAre(false, true, true, false, false));
}

TEST(Segments, ACountBeyondTheSegmentsKeepsEverySeparatorThatHelps) {
  EXPECT_THAT(choose_separators(equal_segments(3, 16, 4), 100), ElementsAre(true, true, false));
}

}  // namespace
}  // namespace aten_recompute
