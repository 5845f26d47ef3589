#include "common/log.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <regex>
#include <string>
#include <thread>
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
using ::testing::SizeIs;

class LogTest : public test::LogTesting {};

std::vector<std::string> read_lines(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(line);
  }
  return lines;
}

TEST_F(LogTest, WarningIsTheDefaultLevel) {
  capture();
  log_debug(LogTopic::kGeneral, "d");
  log_info(LogTopic::kGeneral, "i");
  log_warning(LogTopic::kGeneral, "w");
  log_message(LogTopic::kGeneral, LogLevel::kError, "e");
  EXPECT_THAT(messages_, ElementsAre(Pair(LogLevel::kWarning, "w"), Pair(LogLevel::kError, "e")));
  EXPECT_FALSE(log_enabled(LogTopic::kGeneral, LogLevel::kInfo));
  EXPECT_TRUE(log_enabled(LogTopic::kGeneral, LogLevel::kWarning));
}

TEST_F(LogTest, AcceptsALevelInUpperOrLowerCase) {
  env_->set("RECOMPUTE_LOG_LEVEL", "Debug");
  capture();
  EXPECT_TRUE(log_enabled(LogTopic::kGeneral, LogLevel::kDebug));
  log_debug(LogTopic::kGeneral, "d");
  EXPECT_THAT(messages_, ElementsAre(Pair(LogLevel::kDebug, "d")));
}

TEST_F(LogTest, OffIsSilent) {
  env_->set("RECOMPUTE_LOG_LEVEL", "OFF");
  capture();
  log_message(LogTopic::kGeneral, LogLevel::kError, "e");
  log_message(LogTopic::kGeneral, LogLevel::kOff, "o");
  EXPECT_THAT(messages_, IsEmpty());
  EXPECT_FALSE(log_enabled(LogTopic::kGeneral, LogLevel::kError));
  EXPECT_FALSE(log_enabled(LogTopic::kGeneral, LogLevel::kOff));
}

TEST_F(LogTest, AnInvalidLevelWarnsOnceAndIsWarning) {
  env_->set("RECOMPUTE_LOG_LEVEL", "LOUD");
  capture();
  log_info(LogTopic::kGeneral, "i");
  log_warning(LogTopic::kGeneral, "w");
  ASSERT_THAT(messages_, SizeIs(2));
  EXPECT_THAT(messages_[0].second,
              HasSubstr("RECOMPUTE_LOG_LEVEL is \"LOUD\"; accepted are DEBUG, INFO"));
  EXPECT_EQ(messages_[1].second, "w");
}

TEST_F(LogTest, LinesAreAppendedToTheFile) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "aten_recompute_test_log.txt";
  std::filesystem::remove(path);
  std::ofstream(path) << "before\n";
  env_->set("RECOMPUTE_LOG_LEVEL", "INFO");
  env_->set("RECOMPUTE_LOG_FILE", path.string());
  set_log_sink_for_testing(nullptr);
  log_info(LogTopic::kGeneral, "braces {} are text");

  const std::vector<std::string> lines = read_lines(path);
  ASSERT_THAT(lines, SizeIs(2));
  EXPECT_EQ(lines[0], "before");
  const std::regex line(
      R"(\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3}\] \[aten_recompute\] \[info\] braces \{\} are text)");
  EXPECT_TRUE(std::regex_match(lines[1], line)) << lines[1];
  std::filesystem::remove(path);
}

TEST_F(LogTest, AFileThatCannotBeOpenedWarnsOnceAndStandardErrorIsUsed) {
  env_->set("RECOMPUTE_LOG_FILE", "/dev/null/no_such_folder/log.txt");
  ::testing::internal::CaptureStderr();
  set_log_sink_for_testing(nullptr);
  log_warning(LogTopic::kGeneral, "w");
  const std::string text = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(text, HasSubstr("[aten_recompute] [warning] RECOMPUTE_LOG_FILE cannot be opened"));
  EXPECT_THAT(text, HasSubstr("[aten_recompute] [warning] w\n"));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2) << text;
}

TEST_F(LogTest, ThreadsDoNotMixTheirLines) {
  const auto path = std::filesystem::path(::testing::TempDir()) / "aten_recompute_test_threads.txt";
  std::filesystem::remove(path);
  env_->set("RECOMPUTE_LOG_FILE", path.string());
  set_log_sink_for_testing(nullptr);
  constexpr int kThreads = 4;
  constexpr int kLines = 100;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([] {
      for (int line = 0; line < kLines; ++line) {
        log_warning(LogTopic::kGeneral, "one whole line");
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  const std::vector<std::string> lines = read_lines(path);
  EXPECT_THAT(lines, SizeIs(kThreads * kLines));
  EXPECT_THAT(lines, ::testing::Each(::testing::EndsWith("[warning] one whole line")));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace aten_recompute
