#include "common/did_you_mean.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace aten_recompute {
namespace {

const std::vector<std::string> kNames{"memory_budget", "time_budget", "count", "start", "stride"};

TEST(DidYouMean, SuggestsTheNearestName) {
  EXPECT_EQ(did_you_mean("memory_buget", kNames), R"(; did you mean "memory_budget"?)");
  EXPECT_EQ(did_you_mean("coutn", kNames), R"(; did you mean "count"?)");
  EXPECT_EQ(did_you_mean("STRIDE", kNames), R"(; did you mean "stride"?)");
  EXPECT_EQ(did_you_mean("strat", kNames), R"(; did you mean "start"?)");
}

TEST(DidYouMean, SuggestsAllThatAreEquallyNear) {
  EXPECT_EQ(did_you_mean("ab", {"abc", "abd"}), R"(; did you mean "abc" or "abd"?)");
  EXPECT_EQ(did_you_mean("ab", {"abc", "abd", "abe"}), R"(; did you mean "abc", "abd" or "abe"?)");
  EXPECT_EQ(did_you_mean("ab", {"abc", "abd", "abe", "abf"}), "");
}

TEST(DidYouMean, SuggestsNamesThatContainTheWord) {
  EXPECT_EQ(did_you_mean("budget", kNames), R"(; did you mean "memory_budget" or "time_budget"?)");
  EXPECT_EQ(did_you_mean("bud", kNames), "") << "so few letters are in many names";
}

TEST(DidYouMean, SuggestsNothingForAWordUnlikeAnyName) {
  EXPECT_EQ(did_you_mean("color", kNames), "");
  EXPECT_EQ(did_you_mean("", kNames), "");
  EXPECT_EQ(did_you_mean("6", {"1", "2"}), "");
  EXPECT_EQ(did_you_mean("budget", {}), "");
}

}  // namespace
}  // namespace aten_recompute
