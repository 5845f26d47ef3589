#include "common/log_topics.h"

#include <algorithm>
#include <cctype>

#include "common/did_you_mean.h"
#include "common/lower_case.h"

namespace aten_recompute {
namespace {

struct TopicName {
  LogTopic topic;
  std::string_view name;
};

constexpr std::array kNamed{
    TopicName{LogTopic::kPlan, "plan"},
    TopicName{LogTopic::kBreaks, "breaks"},
    TopicName{LogTopic::kSpecialize, "specialize"},
    TopicName{LogTopic::kMemory, "memory"},
    TopicName{LogTopic::kRules, "rules"},
    TopicName{LogTopic::kProfile, "profile"},
    TopicName{LogTopic::kPaths, "paths"},
};
static_assert(kNamed.size() + 1 == kNumTopics);

constexpr std::string_view kAll = "all";

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && is_space(text.front()))
    text.remove_prefix(1);
  while (!text.empty() && is_space(text.back()))
    text.remove_suffix(1);
  return text;
}

std::string unknown_topic(std::string_view name) {
  std::vector<std::string> known;
  std::string listed;
  for (const auto& each : kNamed) {
    known.emplace_back(each.name);
    listed += std::string(each.name) + ", ";
  }
  known.emplace_back(kAll);
  return "log topic \"" + std::string(name) + "\" is unknown; there are " + listed + "all" +
         did_you_mean(name, known);
}

// Reads one part. Returns what is wrong with it; "" if nothing is.
std::string read_topic(std::string_view part, TopicLevels& levels) {
  auto name = part;
  LogLevel level = LogLevel::kInfo;
  if (const auto sign = part.find('='); sign != std::string_view::npos) {
    name = trimmed(part.substr(0, sign));
    const auto value = trimmed(part.substr(sign + 1));
    const auto given = parse_level(std::string(value));
    if (!given) {
      return "log topic \"" + std::string(name) + "\": level \"" + std::string(value) +
             "\" is unknown; there are debug, info, warning, error, off";
    }
    level = *given;
  } else if (part.front() == '+' || part.front() == '-') {
    level = part.front() == '+' ? LogLevel::kDebug : LogLevel::kOff;
    name = trimmed(part.substr(1));
  }
  const auto lower = lower_case(name);
  bool found = lower == kAll;
  for (const auto& each : kNamed) {
    if (lower != each.name && lower != kAll)
      continue;
    levels[static_cast<size_t>(each.topic)] = level;
    found = true;
  }
  return found ? "" : unknown_topic(name);
}

}  // namespace

std::string_view name_of(LogTopic topic) {
  for (const auto& each : kNamed) {
    if (each.topic == topic)
      return each.name;
  }
  return "";
}

std::optional<LogLevel> parse_level(std::string text) {
  text = lower_case(text);
  if (text == "debug")
    return LogLevel::kDebug;
  if (text == "info")
    return LogLevel::kInfo;
  if (text == "warning")
    return LogLevel::kWarning;
  if (text == "error")
    return LogLevel::kError;
  if (text == "off")
    return LogLevel::kOff;
  return std::nullopt;
}

std::vector<std::string> read_topics(std::string_view text, TopicLevels& levels) {
  std::vector<std::string> errors;
  while (!text.empty()) {
    const auto comma = std::min(text.find(','), text.size());
    const auto part = trimmed(text.substr(0, comma));
    text.remove_prefix(std::min(comma + 1, text.size()));
    if (part.empty())
      continue;
    if (auto error = read_topic(part, levels); !error.empty())
      errors.push_back(std::move(error));
  }
  return errors;
}

}  // namespace aten_recompute
