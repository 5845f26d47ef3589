// The topics of log lines, and the text in which users choose their levels.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace aten_recompute {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

// What a line is about (docs/debugging.md says what is logged).
enum class LogTopic {
  kGeneral,     // none of these; the level of all decides
  kPlan,        // what plans keep and recompute, budgets
  kBreaks,      // regions and what ends them
  kSpecialize,  // what is compiled again, and why; calls that run unplanned
  kMemory,      // measured peaks beside predicted ones
  kRules,       // operators without a gradient rule, tags
  kProfile,     // what operators cost, and how long passes take
  kPaths,       // paths through methods with control flow
};

inline constexpr size_t kNumTopics = 8;  // LogTopic::kGeneral included

// Per topic, by its number: the level at which it is logged; nothing where that is the level of
// all.
using TopicLevels = std::array<std::optional<LogLevel>, kNumTopics>;

// Returns the name of a topic; "" for kGeneral.
std::string_view name_of(LogTopic topic);

// Returns the level that the text names, in upper or lower case; nothing if it names none.
std::optional<LogLevel> parse_level(std::string text);

// Reads "plan,+specialize,-memory,rules=warning,all" from left to right into `levels`. A name
// alone stands for INFO, with + for DEBUG and with - for OFF. Returns one line for each part that
// cannot be read, which is left out.
std::vector<std::string> read_topics(std::string_view text, TopicLevels& levels);

}  // namespace aten_recompute
