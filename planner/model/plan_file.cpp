#include "planner/model/plan_file.h"

#include <aten_recompute/errors.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <stdexcept>
#include <unordered_map>

#include <nlohmann/json.hpp>

#include "common/json_text.h"
#include "planner/model/problem_json.h"

namespace aten_recompute {
namespace {

using OrderedJson = nlohmann::ordered_json;
constexpr const char* kFormat = "aten_recompute.plan/1";
constexpr const char* kKeptBranches = "kept_branches";

// A 64-bit FNV-1a hash of everything that the names and slots of a plan refer to.
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

// Returns the name of a node in plan files: that of its first output.
std::string name_of(const Problem& problem, int32_t node) {
  const auto outputs = problem.outputs[node];
  return outputs.empty() ? problem.node_names[node] : problem.value_names[outputs[0]];
}

[[noreturn]] void fail_to_match(const std::string& what, const std::string& print) {
  PlanMismatchError error("plan: " + what);
  error.region = print;
  error.raise_as_invalid_argument();
}

// The file is the value of the option "plan".
[[noreturn]] void fail_to_read(const std::string& what) {
  InvalidOptionError error("plan: " + what);
  error.option = "plan";
  error.raise_as_invalid_argument();
}

OrderedJson parse(const std::string& text) {
  if (const auto why = json_limit_exceeded(text); !why.empty())
    fail_to_read("it is " + why);
  OrderedJson json;
  try {
    json = OrderedJson::parse(text);
  } catch (const OrderedJson::exception& error) {
    fail_to_read("no valid JSON: " + printable(error.what()));
  }
  if (!json.is_object() || !json.contains("format") || !json.contains("regions")) {
    fail_to_read(
        "not a plan file, which save_plan() writes and which has the keys \"format\" and "
        "\"regions\"");
  }
  if (json["format"] != kFormat) {
    fail_to_read("\"format\" is " + shown_json(json["format"]) + ", expected \"" + kFormat + "\"");
  }
  const auto is_part = [](const OrderedJson& part) {
    return part.is_object() && part.contains("region") && part["region"].is_string();
  };
  const auto& regions = json["regions"];
  if (!regions.is_array() || !std::all_of(regions.begin(), regions.end(), is_part)) {
    fail_to_read("\"regions\" is no list of objects that have a text \"region\"");
  }
  return json;
}

// Returns the `place`-th part with this fingerprint, or the last one if there are fewer.
const OrderedJson& find_part(const OrderedJson& json, const std::string& print,
                             std::optional<size_t> place) {
  const OrderedJson* part = nullptr;
  size_t found = 0;
  for (const auto& region : json["regions"]) {
    if (region["region"] == print && (!place || found++ <= *place))
      part = &region;
  }
  if (part == nullptr) {
    fail_to_match(
        "made for another model, or by another version: no region in it has the fingerprint " +
            print,
        print);
  }
  return *part;
}

// Reads "drop", "instead" and "handed" of a part.
class PlanReader {
 public:
  explicit PlanReader(const Problem& problem) : problem_(problem), plan_(problem) {
    for (size_t value = 0; value < problem.num_values(); ++value)
      values_.emplace(problem.value_names[value], static_cast<int32_t>(value));
  }

  RetentionPlan read(const OrderedJson& part) {
    const auto drop = part.value("drop", OrderedJson::object());
    const auto instead = part.value("instead", OrderedJson::object());
    const auto handed = part.value("handed", OrderedJson::array());
    if (!drop.is_object() || !instead.is_object() || !handed.is_array())
      fail_to_read("\"drop\" and \"instead\" of a region are objects, \"handed\" is a list");
    for (const auto& [name, slots] : drop.items())
      read_drops(name, slots);
    for (const auto& [name, op] : instead.items())
      read_choice(name, op);
    for (const auto& value : handed)
      read_handed(value);
    return std::move(plan_);
  }

 private:
  int32_t find(const std::string& name) const {
    const auto found = values_.find(name);
    if (found == values_.end())
      fail_to_match("the region has no value " + shown_json(OrderedJson(name)),
                    fingerprint(problem_));
    return found->second;
  }

  void read_drops(const std::string& name, const OrderedJson& slots) {
    const auto value = find(name);
    if (!slots.is_array())
      fail_to_read("\"drop\" has " + shown_json(slots) + " for " + shown_json(OrderedJson(name)) +
                   ", expected a list of slots");
    for (const auto& slot : slots) {
      if (!slot.is_number_unsigned() || slot.get<size_t>() >= plan_.num_slots()) {
        fail_to_match(shown_json(OrderedJson(name)) + " is dropped in slot " + shown_json(slot) +
                          ", slots are 0 to " + std::to_string(plan_.num_slots() - 1),
                      fingerprint(problem_));
      }
      plan_.drop(value, slot.get<size_t>());
    }
  }

  void read_handed(const OrderedJson& value) {
    if (!value.is_number_unsigned() || value.get<size_t>() >= problem_.num_values() ||
        problem_.producer[value.get<size_t>()] >= 0) {
      fail_to_match("the region is handed no value " + shown_json(value), fingerprint(problem_));
    }
    plan_.drop(value.get<int32_t>(), 0);
  }

  void read_choice(const std::string& name, const OrderedJson& op) {
    const auto node = problem_.producer[find(name)];
    const auto alternatives = node < 0 ? std::span<const int32_t>() : problem_.alternatives[node];
    const auto found = std::find_if(alternatives.begin(), alternatives.end(),
                                    [&](int32_t each) { return problem_.node_names[each] == op; });
    if (found == alternatives.end())
      fail_to_match(shown_json(OrderedJson(name)) + " cannot be computed by " + shown_json(op),
                    fingerprint(problem_));
    plan_.choose(node, *found);
  }

  const Problem& problem_;
  RetentionPlan plan_;
  std::unordered_map<std::string, int32_t> values_;
};

RetentionPlan read_plan(const OrderedJson& json, const Problem& problem, const std::string& print,
                        std::optional<size_t> place) {
  return PlanReader(problem).read(find_part(json, print, place));
}

// Returns the values that are chosen and own memory, largest first.
template <class IsChosen>
OrderedJson values_with_bytes(const Problem& problem, const IsChosen& is_chosen) {
  std::vector<std::pair<int64_t, int32_t>> by_bytes;
  for (size_t value = 0; value < problem.num_values(); ++value) {
    const auto bytes = problem.value_bytes(static_cast<int32_t>(value));
    const auto producer = problem.producer[value];
    if (is_chosen(value) && producer >= 0 && !problem.is_view[producer] && bytes > 0)
      by_bytes.push_back({-bytes, static_cast<int32_t>(value)});
  }
  std::sort(by_bytes.begin(), by_bytes.end());
  OrderedJson values = OrderedJson::array();
  for (const auto& [bytes, value] : by_bytes) {
    OrderedJson entry{{"value", problem.value_names[value]}, {"bytes", -bytes}};
    if (const auto& layer = problem.layer_of(problem.producer[value]); !layer.empty())
      entry["layer"] = layer;
    values.push_back(std::move(entry));
  }
  return values;
}

// Returns, per value, the slots in which it is in memory because something uses or makes it.
std::map<int32_t, std::set<int32_t>> slots_in_memory(const Problem& problem,
                                                     const Schedule& schedule) {
  std::map<int32_t, std::set<int32_t>> slots;
  for (const auto& gap : schedule.gaps)
    slots[gap.value].insert({gap.from, gap.to});
  for (const auto& step : schedule.steps) {
    const auto outputs = problem.outputs[step.node];
    for (size_t k = 0; k < outputs.size(); ++k) {
      if ((step.output_mask & output_bit(k)) != 0)
        slots[outputs[k]].insert(step.slot);
    }
  }
  return slots;
}

// Drops after which nothing was recomputed have no effect and are left out. What is recomputed may
// be wanted itself, or come with another result of its operator.
OrderedJson effective_drops(const Problem& problem, const SimulatedRun& run) {
  OrderedJson drop = OrderedJson::object();
  std::set<std::pair<int32_t, int32_t>> kept;  // value, slot
  for (const auto& gap : run.schedule.gaps) {
    if (!gap.recomputed)
      kept.emplace(gap.value, gap.from);
  }
  for (const auto& [value, slots] : slots_in_memory(problem, run.schedule)) {
    if (run.schedule.is_recomputed[value] == 0)
      continue;
    for (auto slot = slots.begin(); std::next(slot) != slots.end(); ++slot) {
      if (run.plan.dropped(value, static_cast<size_t>(*slot)) && !kept.contains({value, *slot}))
        drop[problem.value_names[value]].push_back(*slot);
    }
  }
  return drop;
}

OrderedJson chosen_alternatives(const Problem& problem, const RetentionPlan& plan) {
  OrderedJson instead = OrderedJson::object();
  for (size_t node = 0; node < problem.num_nodes; ++node) {
    const auto chosen = plan.chosen(static_cast<int32_t>(node));
    if (chosen != static_cast<int32_t>(node))
      instead[name_of(problem, static_cast<int32_t>(node))] = problem.node_names[chosen];
  }
  return instead;
}

OrderedJson recomputed_steps(const Problem& problem, const SimulatedRun& run) {
  OrderedJson steps = OrderedJson::array();
  for (const auto& step : run.schedule.steps) {
    if (step.slot == 0)
      continue;
    const auto served = problem.node_of(static_cast<size_t>(step.slot));
    if (step.node == served || step.node == run.plan.chosen(served))
      continue;
    steps.push_back(name_of(problem, step.node) + ", for " + problem.node_names[served]);
  }
  return steps;
}

}  // namespace

std::string plan_to_json(const Problem& problem, const RetentionPlan& plan,
                         const std::vector<int32_t>& handed) {
  Simulator simulator(problem);
  const auto result = simulator.run(plan);
  const auto& run = simulator.last_run();
  return OrderedJson{
      {"region", fingerprint(problem)},
      {"peak_bytes", result.peak_bytes},
      {"saved_bytes", result.saved_bytes},
      {"seconds", problem.base_seconds() + result.recompute_seconds},
      {"recompute_seconds", result.recompute_seconds},
      {"saved", values_with_bytes(problem, [&](size_t i) { return run.captured[i] != 0; })},
      {"recomputed",
       values_with_bytes(problem, [&](size_t i) { return run.schedule.is_recomputed[i] != 0; })},
      {"drop", effective_drops(problem, run)},
      {"instead", chosen_alternatives(problem, plan)},
      {"handed", handed},
      {"steps", recomputed_steps(problem, run)}}
      .dump();
}

std::string plan_file(const std::vector<std::string>& regions, const KeptBranches& kept) {
  OrderedJson parts = OrderedJson::array();
  for (const auto& region : regions)
    parts.push_back(OrderedJson::parse(region));
  OrderedJson file{{"format", kFormat}, {"regions", parts}};
  if (!kept.empty())
    file[kKeptBranches] = kept;
  return file.dump(1);
}

KeptBranches kept_branches_of(const std::string& text) {
  const auto json = parse(text);
  try {
    return json.value(kKeptBranches, OrderedJson::object()).get<KeptBranches>();
  } catch (const OrderedJson::exception&) {
    fail_to_read(std::string("\"") + kKeptBranches + "\" is " + shown_json(json[kKeptBranches]) +
                 ", expected {method: [whole number, ...]}");
  }
}

void check_plan_file(const std::string& text) {
  kept_branches_of(text);
}

RetentionPlan plan_from_file(const Problem& problem, const std::string& text) {
  return read_plan(parse(text), problem, fingerprint(problem), std::nullopt);
}

std::vector<RetentionPlan> plans_from_file(const std::vector<const Problem*>& runs,
                                           const std::string& text) {
  const auto json = parse(text);
  std::map<std::string, size_t> places;
  std::vector<RetentionPlan> all;
  for (const auto* problem : runs) {
    const auto print = fingerprint(*problem);
    all.push_back(read_plan(json, *problem, print, places[print]++));
  }
  return all;
}

}  // namespace aten_recompute
