#include "common/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <stdexcept>

#include "tests/cpp/support/scoped_env.h"

namespace aten_recompute {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Not;

TEST(Environment, TheValueOfAVariableIsReturned) {
  test::ScopedEnv env;
  env.set("RECOMPUTE_ARENA", "off");
  EXPECT_EQ(environment("RECOMPUTE_ARENA"), "off");
  EXPECT_TRUE(environment_is("RECOMPUTE_ARENA", "off"));
  EXPECT_FALSE(environment_is("RECOMPUTE_ARENA", "on"));
}

TEST(Environment, AnEmptyValueCountsAsNotSet) {
  test::ScopedEnv env;
  env.set("RECOMPUTE_RUN_ID", "");
  env.set("RUN_ID", "");
  EXPECT_EQ(environment("RECOMPUTE_RUN_ID"), std::nullopt);
}

TEST(Environment, ANumberHasToBePositive) {
  test::ScopedEnv env;
  env.set("RECOMPUTE_SEARCH_STEPS", "5000");
  EXPECT_EQ(environment_number("RECOMPUTE_SEARCH_STEPS"), 5000);
  for (const char* text : {"", "0", "-3", "many"}) {
    env.set("RECOMPUTE_SEARCH_STEPS", text);
    EXPECT_EQ(environment_number("RECOMPUTE_SEARCH_STEPS"), std::nullopt) << text;
  }
}

TEST(Environment, AnOutdatedNameIsReadAndNamed) {
  test::ScopedEnv env;
  env.set("RECOMPUTE_DISABLE_PASSES", "");
  env.set("ATEN_RECOMPUTE_DISABLE_PASSES", "plan");
  EXPECT_EQ(environment("RECOMPUTE_DISABLE_PASSES"), "plan");
  const std::string line =
      "the environment variable ATEN_RECOMPUTE_DISABLE_PASSES is called RECOMPUTE_DISABLE_PASSES "
      "now";
  EXPECT_THAT(outdated_environment_variables(), Contains(line));
  env.set("RECOMPUTE_DISABLE_PASSES", "alternatives");
  EXPECT_EQ(environment("RECOMPUTE_DISABLE_PASSES"), "alternatives");
}

TEST(Environment, NamesOfTheSeedDocumentsAreNotOutdated) {
  test::ScopedEnv env;
  env.set("RECOMPUTE_RUN_ID", "");
  env.set("RUN_ID", "monday");
  EXPECT_EQ(environment("RECOMPUTE_RUN_ID"), "monday");
  EXPECT_THAT(outdated_environment_variables(), Not(Contains(HasSubstr("RUN_ID"))));
}

TEST(Environment, ANameOutsideOfTheTableIsAnError) {
  EXPECT_THROW(environment("RECOMPUTE_ARENAS"), std::logic_error);
}

TEST(Environment, EveryVariableHasARowInTheDocuments) {
  std::ifstream file("docs/debugging.md");
  ASSERT_TRUE(file) << "run this test in the root of the repository";
  std::ostringstream text;
  text << file.rdbuf();
  for (const auto& variable : environment_variables()) {
    EXPECT_THAT(variable.name, testing::StartsWith("RECOMPUTE"));
    EXPECT_THAT(text.str(), HasSubstr("| `" + std::string(variable.name) + "`"));
  }
}

}  // namespace
}  // namespace aten_recompute
