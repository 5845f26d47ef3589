// The log of aten_recompute. This header does not include spdlog, because its headers and
// LibTorch's do not compile together.
#pragma once

#include <functional>
#include <string>

#include "common/log_topics.h"

namespace aten_recompute {

// Writes one line to the log if `level` is enabled for the topic. Thread-safe. A failure to write
// does not throw.
//
// The environment variables `RECOMPUTE_LOG_LEVEL` (DEBUG, INFO, WARNING, ERROR or OFF; default
// WARNING), `RECOMPUTE_LOGS` (levels of topics) and `RECOMPUTE_LOG_FILE` (a file to append to;
// default: standard error) are read when a function of this header is first called.
void log_message(LogTopic topic, LogLevel level, const std::string& message);

// Returns whether a message would be written. Ask before building an expensive message.
bool log_enabled(LogTopic topic, LogLevel level);

void log_debug(LogTopic topic, const std::string& message);
void log_info(LogTopic topic, const std::string& message);
void log_warning(LogTopic topic, const std::string& message);

// Sets the levels of topics that `topics` names, as RECOMPUTE_LOGS does: "plan,+rules,-memory".
// Topics that it does not name keep theirs. "" takes back what was set by this function. Throws
// std::invalid_argument with one line for a topic or level that does not exist, and then changes
// nothing.
void set_log_topics(const std::string& topics);

// Passes every enabled message to `sink` instead of the log; an empty function restores the log.
// The sink is called under a lock and must not log. Each call reads the environment variables
// again.
void set_log_sink_for_testing(std::function<void(LogLevel, const std::string&)> sink);

}  // namespace aten_recompute
