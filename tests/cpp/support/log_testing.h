// A fixture for tests of the log.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/log.h"
#include "tests/cpp/support/scoped_env.h"

namespace aten_recompute::test {

// Begins without the variables of the log, and afterward restores the settings that the program
// was started with, for later tests.
class LogTesting : public ::testing::Test {
 protected:
  LogTesting() {
    env_.emplace();
    env_->unset("RECOMPUTE_LOG_LEVEL");
    env_->unset("RECOMPUTE_LOG_FILE");
    env_->unset("RECOMPUTE_LOGS");
  }
  ~LogTesting() override {
    env_.reset();
    set_log_topics("");
    set_log_sink_for_testing(nullptr);
  }

  void capture() {
    set_log_sink_for_testing([this](LogLevel level, const std::string& message) {
      messages_.emplace_back(level, message);
    });
  }

  std::optional<ScopedEnv> env_;
  std::vector<std::pair<LogLevel, std::string>> messages_;
};

}  // namespace aten_recompute::test
