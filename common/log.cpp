// This file is compiled with hidden symbols, because it contains spdlog and fmt, of which a program
// may have other versions. What the header declares stays visible.
#pragma GCC visibility push(default)
#include "common/log.h"
#include "common/environment.h"
#include "common/log_topics.h"
#pragma GCC visibility pop

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace aten_recompute {
namespace {

struct LevelPair {
  LogLevel level;
  spdlog::level::level_enum spdlog_level;
};

constexpr LogLevel kDefaultLevel = LogLevel::kWarning;
constexpr std::array kLevels{
    LevelPair{LogLevel::kDebug, spdlog::level::debug},
    LevelPair{LogLevel::kInfo, spdlog::level::info},
    LevelPair{LogLevel::kWarning, spdlog::level::warn},
    LevelPair{LogLevel::kError, spdlog::level::err},
    LevelPair{LogLevel::kOff, spdlog::level::off},
};

spdlog::level::level_enum to_spdlog(LogLevel level) {
  for (const LevelPair& entry : kLevels) {
    if (entry.level == level) {
      return entry.spdlog_level;
    }
  }
  return spdlog::level::off;
}

class Log {
 public:
  Log() { configure(); }

  bool enabled(LogTopic topic, LogLevel level) const {
    return level != LogLevel::kOff &&
           level >= levels_[static_cast<size_t>(topic)].load(std::memory_order_relaxed);
  }

  void write(LogTopic topic, LogLevel level, const std::string& message) {
    if (!enabled(topic, level)) {
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    write_locked(topic, level, message);
  }

  void set_topics(const std::string& topics) {
    const std::lock_guard<std::mutex> lock(mutex_);
    auto levels = topics.empty() ? TopicLevels{} : set_levels_;
    const auto errors = read_topics(topics, levels);
    if (!errors.empty()) {
      throw std::invalid_argument(errors.front());
    }
    set_levels_ = levels;
    apply_levels();
  }

  void replace_sink(std::function<void(LogLevel, const std::string&)> sink) {
    const std::lock_guard<std::mutex> lock(mutex_);
    sink_ = std::move(sink);
    configure();
  }

 private:
  // Reads the environment variables. Complaints about them are written last, because they need the
  // logger.
  void configure() {
    auto complaints = outdated_environment_variables();

    const std::string level_text = environment("RECOMPUTE_LOG_LEVEL").value_or("");
    level_ = kDefaultLevel;
    if (!level_text.empty()) {
      if (const std::optional<LogLevel> parsed = parse_level(level_text)) {
        level_ = *parsed;
      } else {
        complaints.push_back(
            "RECOMPUTE_LOG_LEVEL is \"" + level_text +
            "\"; accepted are DEBUG, INFO, WARNING, ERROR and OFF. Using WARNING.");
      }
    }

    environment_levels_ = {};
    for (const std::string& error :
         read_topics(environment("RECOMPUTE_LOGS").value_or(""), environment_levels_)) {
      complaints.push_back("RECOMPUTE_LOGS: " + error);
    }

    spdlog::sink_ptr sink;
    const std::string path = environment("RECOMPUTE_LOG_FILE").value_or("");
    if (!path.empty()) {
      try {
        sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path, /*truncate=*/false);
      } catch (const spdlog::spdlog_ex& error) {
        complaints.push_back("RECOMPUTE_LOG_FILE cannot be opened (" + std::string(error.what()) +
                             "). Logging to standard error.");
      }
    }
    if (sink == nullptr) {
      sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
    }

    // The logger is not in spdlog's registry, so a host program that uses spdlog keeps its
    // settings.
    logger_ = std::make_unique<spdlog::logger>("aten_recompute", std::move(sink));
    logger_->set_pattern("[%Y-%m-%d %H:%M:%S.%e] [%n] [%l] %v");
    logger_->set_level(spdlog::level::trace);
    logger_->flush_on(spdlog::level::trace);
    apply_levels();

    for (const std::string& complaint : complaints) {
      if (enabled(LogTopic::kGeneral, LogLevel::kWarning)) {
        write_locked(LogTopic::kGeneral, LogLevel::kWarning, complaint);
      }
    }
  }

  void apply_levels() {
    for (size_t topic = 0; topic < kNumTopics; ++topic) {
      const LogLevel level =
          set_levels_[topic].value_or(environment_levels_[topic].value_or(level_));
      levels_[topic].store(level, std::memory_order_relaxed);
    }
  }

  void write_locked(LogTopic topic, LogLevel level, const std::string& message) {
    if (sink_) {
      sink_(level, message);
    } else {
      const std::string_view name = name_of(topic);
      logger_->log(
          to_spdlog(level),
          spdlog::string_view_t(name.empty() ? message : "[" + std::string(name) + "] " + message));
    }
  }

  std::mutex mutex_;
  LogLevel level_ = kDefaultLevel;  // of topics that have none of their own
  TopicLevels environment_levels_;
  TopicLevels set_levels_;  // by set_log_topics()
  std::array<std::atomic<LogLevel>, kNumTopics> levels_{};
  std::unique_ptr<spdlog::logger> logger_;
  std::function<void(LogLevel, const std::string&)> sink_;
};

// The log is never destroyed, because destructors of static objects elsewhere may still log.
Log& the_log() {
  static Log* log = new Log();
  return *log;
}

}  // namespace

void log_message(LogTopic topic, LogLevel level, const std::string& message) {
  the_log().write(topic, level, message);
}

bool log_enabled(LogTopic topic, LogLevel level) {
  return the_log().enabled(topic, level);
}

void log_debug(LogTopic topic, const std::string& message) {
  log_message(topic, LogLevel::kDebug, message);
}
void log_info(LogTopic topic, const std::string& message) {
  log_message(topic, LogLevel::kInfo, message);
}
void log_warning(LogTopic topic, const std::string& message) {
  log_message(topic, LogLevel::kWarning, message);
}

void set_log_topics(const std::string& topics) {
  the_log().set_topics(topics);
}

void set_log_sink_for_testing(std::function<void(LogLevel, const std::string&)> sink) {
  the_log().replace_sink(std::move(sink));
}

}  // namespace aten_recompute
