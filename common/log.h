// The log of aten_recompute. This header does not include spdlog, because its headers and
// LibTorch's do not compile together.
#pragma once

#include <functional>
#include <string>

namespace aten_recompute {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Writes one line to the log if `level` is enabled. Thread-safe. A failure to write does not
/// throw.
///
/// The environment variables `RECOMPUTE_LOG_LEVEL` (DEBUG, INFO, WARNING, ERROR or OFF; default
/// WARNING) and `RECOMPUTE_LOG_FILE` (a file to append to; default: standard error) are read when a
/// function of this header is first called.
void log_message(LogLevel level, const std::string& message);

/// Returns whether a message of `level` would be written. Ask before building an expensive message.
bool log_enabled(LogLevel level);

void log_debug(const std::string& message);
void log_info(const std::string& message);
void log_warning(const std::string& message);
void log_error(const std::string& message);

/// Passes every enabled message to `sink` instead of the log; an empty function restores the log.
/// The sink is called under a lock and must not log. Each call reads the environment variables
/// again.
void set_log_sink_for_testing(std::function<void(LogLevel, const std::string&)> sink);

}  // namespace aten_recompute
