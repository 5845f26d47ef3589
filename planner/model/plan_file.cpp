#include "planner/model/plan_file.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <stdexcept>
#include <unordered_map>

#include <nlohmann/json.hpp>

namespace aten_recompute {
namespace {

using Json = nlohmann::ordered_json;
constexpr const char* kFormat = "aten_recompute.plan/1";

// FNV-1a over everything that a plan's names and slots refer to.
class Fingerprint {
 public:
  void add(const std::string& text) {
    for (const char c : text)
      add_byte(static_cast<unsigned char>(c));
    add_byte(0xff);
  }
  void add(std::span<const int32_t> numbers) {
    for (const auto number : numbers)
      add(std::to_string(number));
    add_byte(0xfe);
  }
  std::string hex() const {
    char text[17];
    std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(hash_));
    return text;
  }

 private:
  void add_byte(unsigned char byte) { hash_ = (hash_ ^ byte) * 0x100000001b3ULL; }
  uint64_t hash_ = 0xcbf29ce484222325ULL;
};

std::string fingerprint(const Problem& problem) {
  Fingerprint print;
  for (size_t node = 0; node < problem.num_all_nodes(); ++node) {
    print.add(problem.node_names[node]);
    print.add(problem.inputs[node]);
    print.add(problem.outputs[node]);
  }
  return print.hex();
}

// What a node is known by: its first output.
std::string name_of(const Problem& problem, int32_t node) {
  const auto outputs = problem.outputs[node];
  return outputs.empty() ? problem.node_names[node] : problem.value_names[outputs[0]];
}

Json parse(const std::string& text) {
  Json json;
  try {
    json = Json::parse(text);
  } catch (const Json::exception& error) {
    throw std::invalid_argument(std::string("plan: no valid JSON: ") + error.what());
  }
  if (!json.is_object() || !json.contains("format") || !json.contains("regions")) {
    throw std::invalid_argument(
        "plan: not a plan file, which has the keys \"format\" and \"regions\"");
  }
  if (json["format"] != kFormat) {
    throw std::invalid_argument("plan: \"format\" is " + json["format"].dump() + ", expected \"" +
                                kFormat + "\"");
  }
  return json;
}

// Of the last part with this fingerprint, or the part at `place` among theirs.
RetentionPlan decisions_from(const Json& json, const Problem& problem, const std::string& print,
                             std::optional<size_t> place) {
  const Json* part = nullptr;
  size_t found = 0;
  for (const auto& region : json["regions"]) {
    if (region.value("region", "") == print && (!place || found++ <= *place))
      part = &region;
  }
  if (part == nullptr) {
    throw std::invalid_argument(
        "plan: made for another model, or by another version: no region in it has the "
        "fingerprint " +
        print);
  }
  std::unordered_map<std::string, int32_t> values;
  for (size_t value = 0; value < problem.num_values(); ++value)
    values.emplace(problem.value_names[value], static_cast<int32_t>(value));
  auto find = [&](const std::string& name) {
    const auto found = values.find(name);
    if (found == values.end())
      throw std::invalid_argument("plan: the region has no value \"" + name + "\"");
    return found->second;
  };
  RetentionPlan decisions(problem);
  const auto drop = part->value("drop", Json::object());
  for (const auto& [name, slots] : drop.items()) {
    const auto value = find(name);
    for (const auto& slot : slots) {
      if (!slot.is_number_unsigned() || slot.get<size_t>() >= decisions.num_slots()) {
        throw std::invalid_argument("plan: \"" + name + "\" is dropped in slot " + slot.dump() +
                                    ", slots are 0 to " +
                                    std::to_string(decisions.num_slots() - 1));
      }
      decisions.drop(value, slot.get<size_t>());
    }
  }
  const auto instead = part->value("instead", Json::object());
  for (const auto& [name, op] : instead.items()) {
    const auto node = problem.producer[find(name)];
    const auto alternatives = node < 0 ? std::span<const int32_t>() : problem.alternatives[node];
    const auto found = std::find_if(alternatives.begin(), alternatives.end(),
                                    [&](int32_t each) { return problem.node_names[each] == op; });
    if (found == alternatives.end()) {
      throw std::invalid_argument("plan: \"" + name + "\" cannot be computed by " + op.dump());
    }
    decisions.choose(node, *found);
  }
  return decisions;
}

}  // namespace

std::string plan_to_json(const Problem& problem, const RetentionPlan& decisions) {
  Simulator simulator(problem);
  const auto result = simulator.run(decisions);
  Json saved = Json::array();
  std::vector<std::pair<int64_t, int32_t>> by_bytes;
  for (size_t value = 0; value < problem.num_values(); ++value) {
    const auto bytes = problem.value_bytes(static_cast<int32_t>(value));
    const auto producer = problem.producer[value];
    if (simulator.captured()[value] && producer >= 0 && !problem.is_view[producer] && bytes > 0)
      by_bytes.push_back({-bytes, static_cast<int32_t>(value)});
  }
  std::sort(by_bytes.begin(), by_bytes.end());
  for (const auto& [bytes, value] : by_bytes)
    saved.push_back({{"value", problem.value_names[value]}, {"bytes", -bytes}});

  // Only where letting go made a difference.
  Json drop = Json::object();
  for (const auto& gap : simulator.gaps()) {
    if (gap.recomputed)
      drop[problem.value_names[gap.value]].push_back(gap.from);
  }
  Json instead = Json::object();
  for (size_t node = 0; node < problem.num_nodes; ++node) {
    const auto chosen = decisions.chosen(static_cast<int32_t>(node));
    if (chosen != static_cast<int32_t>(node))
      instead[name_of(problem, static_cast<int32_t>(node))] = problem.node_names[chosen];
  }
  Json steps = Json::array();
  for (const auto& step : simulator.steps()) {
    if (step.slot == 0)
      continue;
    const auto served = static_cast<int32_t>(problem.num_forward) + step.slot - 1;
    if (step.node == decisions.chosen(served))
      continue;
    steps.push_back(name_of(problem, step.node) + ", for " + problem.node_names[served]);
  }
  return Json{{"region", fingerprint(problem)},
              {"peak_bytes", result.peak_bytes},
              {"saved_bytes", result.saved_bytes},
              {"seconds", problem.base_seconds() + result.recompute_seconds},
              {"recompute_seconds", result.recompute_seconds},
              {"saved", saved},
              {"drop", drop},
              {"instead", instead},
              {"steps", steps}}
      .dump();
}

std::string plan_file(const std::vector<std::string>& regions) {
  Json parts = Json::array();
  for (const auto& region : regions)
    parts.push_back(Json::parse(region));
  return Json{{"format", kFormat}, {"regions", parts}}.dump(1);
}

void check_plan_file(const std::string& text) {
  parse(text);
}

RetentionPlan plan_from_file(const Problem& problem, const std::string& text) {
  return decisions_from(parse(text), problem, fingerprint(problem), std::nullopt);
}

std::vector<RetentionPlan> plans_from_file(const std::vector<const Problem*>& runs,
                                           const std::string& text) {
  const auto json = parse(text);
  std::map<std::string, size_t> places;
  std::vector<RetentionPlan> all;
  for (const auto* problem : runs) {
    const auto print = fingerprint(*problem);
    all.push_back(decisions_from(json, *problem, print, places[print]++));
  }
  return all;
}

}  // namespace aten_recompute
