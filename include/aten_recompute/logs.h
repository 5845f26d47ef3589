// Chooses what the library logs, by topic.
#pragma once

#include <string>

namespace aten_recompute {

/// Sets the levels of log topics: "plan,+specialize,-memory". The topics are plan, breaks,
/// specialize, memory, rules, profile and paths, and "all" (docs/debugging.md). A name alone logs
/// what INFO does, with + what DEBUG does, with - nothing; "rules=warning" names a level. Topics
/// that are not named keep theirs. "" takes back what this function has set, so that the
/// environment variables RECOMPUTE_LOGS, of the same form, and RECOMPUTE_LOG_LEVEL decide again.
/// Thread-safe.
///
/// Throws std::invalid_argument with one line for an unknown topic or level; nothing changes then.
void set_logs(const std::string& topics);

}  // namespace aten_recompute
