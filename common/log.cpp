// This file is compiled with hidden symbols, because it contains spdlog and fmt, of which a program
// may have other versions. What the header declares stays visible.
#pragma GCC visibility push(default)
#include "common/log.h"
#pragma GCC visibility pop

#include <algorithm>
#include <array>
#include <atomic>
#include <cctype>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <spdlog/logger.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace aten_recompute {
namespace {

struct LevelName {
  LogLevel level;
  std::string_view name;
  spdlog::level::level_enum spdlog_level;
};

constexpr LogLevel kDefaultLevel = LogLevel::kWarning;
constexpr std::array kLevels{
    LevelName{LogLevel::kDebug, "DEBUG", spdlog::level::debug},
    LevelName{LogLevel::kInfo, "INFO", spdlog::level::info},
    LevelName{LogLevel::kWarning, "WARNING", spdlog::level::warn},
    LevelName{LogLevel::kError, "ERROR", spdlog::level::err},
    LevelName{LogLevel::kOff, "OFF", spdlog::level::off},
};

std::string read_env(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::optional<LogLevel> parse_level(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::toupper(c); });
  for (const LevelName& entry : kLevels) {
    if (entry.name == text) {
      return entry.level;
    }
  }
  return std::nullopt;
}

spdlog::level::level_enum to_spdlog(LogLevel level) {
  for (const LevelName& entry : kLevels) {
    if (entry.level == level) {
      return entry.spdlog_level;
    }
  }
  return spdlog::level::off;
}

class Log {
 public:
  Log() { configure(); }

  bool enabled(LogLevel level) const {
    return level != LogLevel::kOff && level >= level_.load(std::memory_order_relaxed);
  }

  void write(LogLevel level, const std::string& message) {
    if (!enabled(level)) {
      return;
    }
    const std::lock_guard<std::mutex> lock(mutex_);
    write_locked(level, message);
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
    std::vector<std::string> complaints;

    const std::string level_text = read_env("RECOMPUTE_LOG_LEVEL");
    LogLevel level = kDefaultLevel;
    if (!level_text.empty()) {
      if (const std::optional<LogLevel> parsed = parse_level(level_text)) {
        level = *parsed;
      } else {
        complaints.push_back(
            "RECOMPUTE_LOG_LEVEL is \"" + level_text +
            "\"; accepted are DEBUG, INFO, WARNING, ERROR and OFF. Using WARNING.");
      }
    }

    spdlog::sink_ptr sink;
    const std::string path = read_env("RECOMPUTE_LOG_FILE");
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
    level_.store(level, std::memory_order_relaxed);

    for (const std::string& complaint : complaints) {
      if (enabled(LogLevel::kWarning)) {
        write_locked(LogLevel::kWarning, complaint);
      }
    }
  }

  void write_locked(LogLevel level, const std::string& message) {
    if (sink_) {
      sink_(level, message);
    } else {
      logger_->log(to_spdlog(level), spdlog::string_view_t(message));
    }
  }

  std::mutex mutex_;
  std::atomic<LogLevel> level_{kDefaultLevel};
  std::unique_ptr<spdlog::logger> logger_;
  std::function<void(LogLevel, const std::string&)> sink_;
};

// The log is never destroyed, because destructors of static objects elsewhere may still log.
Log& the_log() {
  static Log* log = new Log();
  return *log;
}

}  // namespace

void log_message(LogLevel level, const std::string& message) {
  the_log().write(level, message);
}

bool log_enabled(LogLevel level) {
  return the_log().enabled(level);
}

void log_debug(const std::string& message) {
  log_message(LogLevel::kDebug, message);
}
void log_info(const std::string& message) {
  log_message(LogLevel::kInfo, message);
}
void log_warning(const std::string& message) {
  log_message(LogLevel::kWarning, message);
}
void log_error(const std::string& message) {
  log_message(LogLevel::kError, message);
}

void set_log_sink_for_testing(std::function<void(LogLevel, const std::string&)> sink) {
  the_log().replace_sink(std::move(sink));
}

}  // namespace aten_recompute
