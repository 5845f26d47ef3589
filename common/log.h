// The log of aten_recompute. Nothing of spdlog shows here: its headers and LibTorch's do not
// compile together.
#pragma once

#include <functional>
#include <string>

namespace aten_recompute {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Writes one line to the log if `level` is enabled. Thread-safe; never throws because of the sink.
///
/// `RECOMPUTE_LOG_LEVEL` (DEBUG, INFO, WARNING, ERROR, OFF; default WARNING) and
/// `RECOMPUTE_LOG_FILE` (appended to; default standard error) are read at the first call of a
/// function of this header.
void log_message(LogLevel level, const std::string& message);

/// True if a message of `level` would be written: ask before building an expensive message.
bool log_enabled(LogLevel level);

void log_debug(const std::string& message);
void log_info(const std::string& message);
void log_warning(const std::string& message);
void log_error(const std::string& message);

/// Hands every enabled message to `sink` instead of the log; an empty function restores the log.
/// The sink is called under a lock and must not log. With each call the environment variables are
/// read again.
void set_log_sink_for_testing(std::function<void(LogLevel, const std::string&)> sink);

}  // namespace aten_recompute
