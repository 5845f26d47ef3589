#include "common/json_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include <string>

namespace aten_recompute {
namespace {

using testing::HasSubstr;

std::string nested(size_t depth) {
  return std::string(depth, '[') + std::string(depth, ']');
}

TEST(JsonText, AcceptsWhatPlansAndOptionsNeed) {
  EXPECT_EQ(json_limit_exceeded(""), "");
  EXPECT_EQ(json_limit_exceeded(R"({"a": [1, {"b": []}]})"), "");
  EXPECT_EQ(json_limit_exceeded(nested(kDeepestJson)), "");
}

TEST(JsonText, RefusesDeepNesting) {
  EXPECT_THAT(json_limit_exceeded(nested(kDeepestJson + 1)), HasSubstr("64 levels"));
  EXPECT_THAT(json_limit_exceeded(std::string(1 << 20, '{')), HasSubstr("64 levels"));
}

TEST(JsonText, CountsNoBracketsInStrings) {
  EXPECT_EQ(json_limit_exceeded("\"" + std::string(1000, '[') + "\""), "");
  EXPECT_EQ(json_limit_exceeded(R"("\"[[[\\")" + nested(3)), "");
  EXPECT_THAT(json_limit_exceeded(R"("\\")" + nested(100)), HasSubstr("64 levels"));
}

TEST(JsonText, RefusesLongTexts) {
  EXPECT_THAT(json_limit_exceeded(std::string(kLongestJson + 1, ' ')), HasSubstr("32 MiB"));
}

TEST(JsonText, ShowsValuesInOneShortLine) {
  EXPECT_EQ(shown_json(nlohmann::json("a\nb\xff")), R"("a\nb\ufffd")");
  EXPECT_EQ(shown_json(nlohmann::json(std::string(100, 'x'))).size(), 83U);
  EXPECT_EQ(printable("a\nb\xff"), "a?b?");
  EXPECT_EQ(printable(std::string(400, 'x')).size(), 303U);
}

}  // namespace
}  // namespace aten_recompute
