#include "common/log_topics.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cpp/support/log_testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::ThrowsMessage;

std::optional<LogLevel> level_of(const TopicLevels& levels, LogTopic topic) {
  return levels[static_cast<size_t>(topic)];
}

TEST(ReadTopics, ANameIsInfoAPlusDebugAndAMinusOff) {
  TopicLevels levels;
  EXPECT_THAT(read_topics("plan, +Specialize ,-memory,rules=warning", levels), IsEmpty());
  EXPECT_EQ(level_of(levels, LogTopic::kPlan), LogLevel::kInfo);
  EXPECT_EQ(level_of(levels, LogTopic::kSpecialize), LogLevel::kDebug);
  EXPECT_EQ(level_of(levels, LogTopic::kMemory), LogLevel::kOff);
  EXPECT_EQ(level_of(levels, LogTopic::kRules), LogLevel::kWarning);
  EXPECT_EQ(level_of(levels, LogTopic::kBreaks), std::nullopt);
}

TEST(ReadTopics, LaterPartsOverrideEarlierOnes) {
  TopicLevels levels;
  EXPECT_THAT(read_topics("+all,-paths", levels), IsEmpty());
  EXPECT_EQ(level_of(levels, LogTopic::kProfile), LogLevel::kDebug);
  EXPECT_EQ(level_of(levels, LogTopic::kPaths), LogLevel::kOff);
  EXPECT_EQ(level_of(levels, LogTopic::kGeneral), std::nullopt);
}

TEST(ReadTopics, AnErrorListsTopicsOrLevelsAndTheRestIsRead) {
  TopicLevels levels;
  EXPECT_THAT(
      read_topics("plans,plan,memory=loud,", levels),
      ElementsAre(
          "log topic \"plans\" is unknown; there are plan, breaks, specialize, memory, "
          "rules, profile, paths, all; did you mean \"plan\"?",
          "log topic \"memory\": level \"loud\" is unknown; there are debug, info, warning, "
          "error, off"));
  EXPECT_EQ(level_of(levels, LogTopic::kPlan), LogLevel::kInfo);
  EXPECT_EQ(level_of(levels, LogTopic::kMemory), std::nullopt);
}

class LogTopics : public test::LogTesting {};

TEST_F(LogTopics, TheEnvironmentNamesTopics) {
  env_->set("RECOMPUTE_LOGS", "plan,-memory");
  capture();
  log_info(LogTopic::kPlan, "p");
  log_info(LogTopic::kRules, "r");
  log_warning(LogTopic::kMemory, "m");
  log_warning(LogTopic::kRules, "w");
  EXPECT_THAT(messages_, ElementsAre(Pair(LogLevel::kInfo, "p"), Pair(LogLevel::kWarning, "w")));
}

TEST_F(LogTopics, TheLevelIsThatOfTopicsThatAreNotNamed) {
  env_->set("RECOMPUTE_LOG_LEVEL", "DEBUG");
  env_->set("RECOMPUTE_LOGS", "rules=error");
  capture();
  EXPECT_TRUE(log_enabled(LogTopic::kPlan, LogLevel::kDebug));
  EXPECT_TRUE(log_enabled(LogTopic::kGeneral, LogLevel::kDebug));
  EXPECT_FALSE(log_enabled(LogTopic::kRules, LogLevel::kWarning));
}

TEST_F(LogTopics, AnUnknownTopicInTheEnvironmentIsOneWarning) {
  env_->set("RECOMPUTE_LOGS", "plam,rules");
  capture();
  ASSERT_EQ(messages_.size(), 1U);
  EXPECT_THAT(messages_[0].second,
              HasSubstr("RECOMPUTE_LOGS: log topic \"plam\" is unknown; there are plan, breaks"));
  EXPECT_TRUE(log_enabled(LogTopic::kRules, LogLevel::kInfo));
}

TEST_F(LogTopics, CodeSetsTopicsAndAnEmptyTextUndoesThat) {
  env_->set("RECOMPUTE_LOGS", "plan");
  capture();
  set_log_topics("+plan,memory");
  EXPECT_TRUE(log_enabled(LogTopic::kPlan, LogLevel::kDebug));
  set_log_topics("-plan");
  EXPECT_FALSE(log_enabled(LogTopic::kPlan, LogLevel::kError));
  EXPECT_TRUE(log_enabled(LogTopic::kMemory, LogLevel::kInfo));
  set_log_topics("");
  EXPECT_TRUE(log_enabled(LogTopic::kPlan, LogLevel::kInfo));
  EXPECT_FALSE(log_enabled(LogTopic::kMemory, LogLevel::kInfo));
}

TEST_F(LogTopics, AnUnknownTopicInCodeThrowsAndChangesNothing) {
  capture();
  EXPECT_THAT([] { set_log_topics("plan,momory"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("did you mean \"memory\"?")));
  EXPECT_FALSE(log_enabled(LogTopic::kPlan, LogLevel::kInfo));
}

TEST_F(LogTopics, ALineNamesItsTopic) {
  ::testing::internal::CaptureStderr();
  set_log_sink_for_testing(nullptr);
  log_warning(LogTopic::kMemory, "m");
  log_warning(LogTopic::kGeneral, "g");
  const auto text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("[aten_recompute] [warning] [memory] m\n"));
  EXPECT_THAT(text, HasSubstr("[aten_recompute] [warning] g\n"));
}

}  // namespace
}  // namespace aten_recompute
