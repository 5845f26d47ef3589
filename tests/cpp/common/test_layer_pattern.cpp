#include "common/layer_pattern.h"

#include <gtest/gtest.h>

#include <string>

namespace aten_recompute {
namespace {

TEST(LayerPattern, MatchesModulePaths) {
  const auto pattern = compile_layer_pattern(R"((encoder|decoder)\.layers\.\d+)");
  ASSERT_TRUE(pattern);
  EXPECT_TRUE(std::regex_match("decoder.layers.12", *pattern));
  EXPECT_FALSE(std::regex_match("decoder.layers", *pattern));
}

TEST(LayerPattern, RefusesWhatIsNoRegularExpression) {
  EXPECT_FALSE(compile_layer_pattern("body.("));
  EXPECT_FALSE(compile_layer_pattern("[z-a]"));
}

// With backtracking, these would take longer than anybody waits.
TEST(LayerPattern, TakesNoExponentialTime) {
  const auto pattern = compile_layer_pattern("(a*)*b");
  ASSERT_TRUE(pattern);
  EXPECT_FALSE(std::regex_match(std::string(200, 'a'), *pattern));
  const auto optional = compile_layer_pattern("(a?){40}a{40}");
  ASSERT_TRUE(optional);
  EXPECT_TRUE(std::regex_match(std::string(40, 'a'), *optional));
}

TEST(LayerPattern, RefusesPatternsThatTakeMuchMemory) {
  EXPECT_FALSE(compile_layer_pattern(std::string(kLongestPattern + 1, 'a')));
  EXPECT_FALSE(compile_layer_pattern("a{100000000}"));
  EXPECT_FALSE(compile_layer_pattern("a{1,99999999999999999999}"));
  EXPECT_FALSE(compile_layer_pattern("((((a{99}){99}){99}){99}){99}"));
  EXPECT_FALSE(compile_layer_pattern(std::string(100'000, '(')));
}

}  // namespace
}  // namespace aten_recompute
