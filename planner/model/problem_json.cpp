#include "planner/model/problem_json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

#include "common/json_text.h"
#include "planner/model/problem_builder.h"

namespace aten_recompute {
namespace {

using Json = nlohmann::json;

Json rows_to_json(const JaggedArray& rows) {
  auto json = Json::array();
  for (size_t i = 0; i < rows.size(); ++i)
    json.push_back(std::vector<int32_t>(rows[i].begin(), rows[i].end()));
  return json;
}

void check(bool holds, const char* otherwise) {
  if (!holds)
    throw std::invalid_argument(std::string("not a planning problem: ") + otherwise);
}

// "replay_bytes" may be missing or empty: no node then needs any.
bool has_replay_bytes(const Json& nodes) {
  return nodes.contains("replay_bytes") && !nodes["replay_bytes"].empty();
}

void check_lengths(const Json& nodes) {
  const auto count = nodes.at("seconds").size();
  const auto check_length = [&](const char* key) {
    check(nodes.at(key).size() == count, "lists of \"nodes\" differ in length");
  };
  for (const char* key : {"name", "inputs", "outputs", "overwrites", "flops", "workspace_bytes",
                          "recomputable", "is_view", "alternatives", "optional"}) {
    check_length(key);
  }
  if (has_replay_bytes(nodes))
    check_length("replay_bytes");
}

// Lists that only messages need, and that older files do not have, may be missing.
std::string text_of_node(const Json& texts, const Json& nodes, const char* key, size_t node) {
  if (!nodes.contains(key) || nodes[key].empty())
    return "";
  const auto index = nodes[key].at(node).get<int64_t>();
  return index < 0 ? "" : texts.at(static_cast<size_t>(index)).get<std::string>();
}

ProblemNode node_from_json(const Json& nodes, size_t node) {
  const auto field = [&](const char* key) -> const Json& { return nodes.at(key).at(node); };
  const auto flag = [&](const char* key) { return field(key).get<uint8_t>() != 0; };
  return {.name = field("name"),
          .inputs = field("inputs"),
          .outputs = field("outputs"),
          .overwrites = field("overwrites"),
          .seconds = field("seconds"),
          .flops = field("flops"),
          .workspace_bytes = field("workspace_bytes"),
          .replay_bytes = has_replay_bytes(nodes) ? field("replay_bytes").get<int64_t>() : 0,
          .recomputable = flag("recomputable"),
          .is_view = flag("is_view"),
          .optional = flag("optional"),
          .alternatives = field("alternatives")};
}

Problem read_problem(const Json& json) {
  const size_t num_forward = json.at("num_forward");
  const size_t num_nodes = json.at("num_nodes");
  const auto& nodes = json.at("nodes");
  const auto& values = json.at("values");
  const auto& names = values.at("name");
  const auto& producers = values.at("producer");
  const auto& storages = values.at("storages");
  const auto& bytes = json.at("storages").at("bytes");
  const auto& held = json.at("storages").at("held");
  check_lengths(nodes);
  const auto count = nodes.at("seconds").size();
  check(num_nodes <= count && num_forward <= num_nodes && storages.size() == producers.size() &&
            names.size() == producers.size() && held.size() == bytes.size(),
        "counts and lists do not agree");

  ProblemBuilder builder;
  for (size_t storage = 0; storage < bytes.size(); ++storage)
    builder.add_storage(bytes.at(storage), held.at(storage).get<uint8_t>() != 0);
  for (size_t value = 0; value < producers.size(); ++value)
    builder.add_value(names.at(value), storages.at(value), producers.at(value));
  const auto layers = json.value("layers", Json::array());
  const auto sources = json.value("sources", Json::array());
  for (size_t node = 0; node < count; ++node) {
    auto description = node_from_json(nodes, node);
    description.place = builder.place(text_of_node(layers, nodes, "layer", node),
                                      text_of_node(sources, nodes, "source", node));
    builder.add_node(std::move(description));
  }
  auto problem = builder.build();
  problem.num_forward = num_forward;
  problem.num_served_forward = json.value("num_served_forward", size_t{0});
  check(problem.num_served_forward <= num_forward,
        "\"num_served_forward\" is larger than \"num_forward\"");
  problem.is_one_program = json.value("one_program", false);
  problem.num_nodes = num_nodes;
  problem.again = nodes.value("again", std::vector<int32_t>{});
  check(problem.again.empty() || problem.again.size() == count,
        "\"again\" is no list of all nodes");
  problem.results = json.at("results").get<std::vector<int32_t>>();
  problem.freed_before_backward = json.value("let_go", std::vector<int32_t>{});
  problem.incoming = json.at("incoming").get<std::vector<int32_t>>();
  problem.loss_bytes = json.value("loss_bytes", int64_t{0});
  problem.held_by_caller = json.value("held_by_caller", int64_t{0});
  problem.other_calls = json.value("other_calls", 0.0);
  problem.retains_graph = json.value("retains_graph", false);
  problem.repeats_backward = json.value("repeats_backward", false);
  problem.added_results = json.value("added_results", std::vector<int32_t>{});
  return problem;
}

void check_index(int32_t index, int32_t least, size_t size, const char* list) {
  if (index < least || index >= static_cast<int32_t>(size)) {
    throw std::invalid_argument("not a planning problem: \"" + std::string(list) +
                                "\" has the index " + std::to_string(index) + " of " +
                                std::to_string(size));
  }
}

void check_indices(const JaggedArray& rows, size_t size, const char* list) {
  for (size_t row = 0; row < rows.size(); ++row) {
    for (auto index : rows[row])
      check_index(index, 0, size, list);
  }
}

void check_all_indices(const Problem& problem) {
  const auto nodes = problem.num_all_nodes();
  check_indices(problem.inputs, problem.num_values(), "inputs");
  check_indices(problem.outputs, problem.num_values(), "outputs");
  check_indices(problem.overwrites, problem.num_values(), "overwrites");
  check_indices(problem.alternatives, nodes, "alternatives");
  check_indices(problem.storages, problem.num_storages(), "storages");
  for (auto node : problem.again)
    check_index(node, -1, nodes, "again");
  for (auto node : problem.producer)
    check_index(node, -1, nodes, "producer");
  for (auto value : problem.results)
    check_index(value, 0, problem.num_values(), "results");
  for (auto value : problem.freed_before_backward)
    check_index(value, 0, problem.num_values(), "let_go");
  for (auto value : problem.incoming)
    check_index(value, 0, problem.num_values(), "incoming");
  for (auto value : problem.added_results)
    check_index(value, 0, problem.num_values(), "added_results");
}

// Sums of these must not overflow.
void check_costs(const Problem& problem) {
  constexpr int64_t kMostBytes = int64_t{1} << 60;
  constexpr double kMostCalls = 1e6;
  constexpr double kMostSeconds = 1e12, kMostFlops = 1e30;
  int64_t sum = 0;
  const auto add = [&](int64_t bytes, const char* list) {
    if (bytes < 0 || bytes > kMostBytes - sum)
      throw std::invalid_argument("not a planning problem: \"" + std::string(list) +
                                  "\" has the number " + std::to_string(bytes) +
                                  ", expected bytes, 2^60 of them in all at most");
    sum += bytes;
  };
  for (auto bytes : problem.bytes)
    add(bytes, "bytes");
  for (size_t node = 0; node < problem.num_all_nodes(); ++node) {
    add(problem.workspace_bytes[node], "workspace_bytes");
    add(problem.replay_bytes[node], "replay_bytes");
    check(problem.seconds[node] >= 0.0 && problem.seconds[node] <= kMostSeconds,
          "\"seconds\" has a number that is no time");
    check(problem.flops[node] >= 0.0 && problem.flops[node] <= kMostFlops,
          "\"flops\" has a number that is no count");
  }
  add(problem.loss_bytes, "loss_bytes");
  add(problem.held_by_caller, "held_by_caller");
  check(problem.other_calls >= 0.0 && problem.other_calls <= kMostCalls,
        "\"other_calls\" has a number that is no count of calls, which is at most 1000000");
  // Each of them holds less than the sum of all bytes.
  check(static_cast<double>(sum) * (1.0 + problem.other_calls) <= static_cast<double>(kMostBytes),
        "the bytes of all \"other_calls\" are more than 2^60");
}

bool contains(std::span<const int32_t> list, int32_t item) {
  return std::find(list.begin(), list.end(), item) != list.end();
}

// Every value is made once, by the node that says so, and read later than that.
void check_order(const Problem& problem) {
  const auto num_nodes = static_cast<int32_t>(problem.num_nodes);
  std::vector<uint8_t> is_made(problem.num_values(), 0);
  for (int32_t node = 0; node < num_nodes; ++node) {
    for (auto value : problem.inputs[node])
      check(problem.producer[value] < node, "a node reads what a later one makes");
    for (auto value : problem.outputs[node]) {
      check(problem.producer[value] == node && !is_made[value],
            "\"outputs\" and \"producer\" do not agree");
      is_made[value] = 1;
    }
  }
  for (size_t value = 0; value < problem.num_values(); ++value)
    check((problem.producer[value] >= 0) == (is_made[value] != 0),
          "\"outputs\" and \"producer\" do not agree");
  for (auto value : problem.incoming)
    check(problem.producer[value] < 0, "a node makes a value that is incoming");
}

// What runs in the place of a node stands after all nodes, and makes what that node makes.
void check_substitutes(const Problem& problem) {
  const auto num_nodes = static_cast<int32_t>(problem.num_nodes);
  const auto check_substitute = [&](int32_t node, int32_t other) {
    check(other >= num_nodes, "a node of its own stands in for another one");
    for (auto value : problem.outputs[other])
      check(contains(problem.outputs[node], value),
            "a node stands in for another one that makes other values");
  };
  for (int32_t node = 0; node < static_cast<int32_t>(problem.num_all_nodes()); ++node) {
    check(node < num_nodes || problem.alternatives[node].empty(),
          "an alternative has alternatives");
    for (auto other : problem.alternatives[node])
      check_substitute(node, other);
    if (problem.again.empty() || problem.again[node] < 0)
      continue;
    check(node < static_cast<int32_t>(problem.num_forward),
          "a node runs again that is none of the forward");
    check_substitute(node, problem.again[node]);
  }
}

void check_overwrites(const Problem& problem) {
  constexpr size_t kMost = 32;  // bits of Step::reusable_operands
  for (size_t node = 0; node < problem.num_all_nodes(); ++node) {
    const auto overwrites = problem.overwrites[node];
    check(overwrites.size() <= kMost && (overwrites.empty() || !problem.outputs[node].empty()),
          "\"overwrites\" has values of a node that makes none, or more than 32");
    for (auto value : overwrites)
      check(contains(problem.inputs[node], value), "a node overwrites what it does not read");
  }
}

}  // namespace

std::string to_json(const Problem& problem) {
  Json json = {
      {"format", "aten_recompute.problem/1"},
      {"num_forward", problem.num_forward},
      {"num_nodes", problem.num_nodes},
      {"nodes",
       {{"name", problem.node_names},
        {"inputs", rows_to_json(problem.inputs)},
        {"outputs", rows_to_json(problem.outputs)},
        {"overwrites", rows_to_json(problem.overwrites)},
        {"seconds", problem.seconds},
        {"flops", problem.flops},
        {"workspace_bytes", problem.workspace_bytes},
        {"replay_bytes", problem.replay_bytes},
        {"recomputable", problem.recomputable},
        {"is_view", problem.is_view},
        {"alternatives", rows_to_json(problem.alternatives)},
        {"optional", problem.optional}}},
      {"values",
       {{"name", problem.value_names},
        {"producer", problem.producer},
        {"storages", rows_to_json(problem.storages)}}},
      {"storages", {{"bytes", problem.bytes}, {"held", problem.held}}},
      {"results", problem.results},
      {"let_go", problem.freed_before_backward},
      {"incoming", problem.incoming},
      {"loss_bytes", problem.loss_bytes},
      {"held_by_caller", problem.held_by_caller},
  };
  if (problem.num_served_forward > 0)
    json["num_served_forward"] = problem.num_served_forward;
  if (problem.is_one_program)
    json["one_program"] = true;
  if (problem.other_calls > 0.0)
    json["other_calls"] = problem.other_calls;
  if (problem.retains_graph) {
    json["retains_graph"] = true;
    json["repeats_backward"] = problem.repeats_backward;
  }
  if (!problem.added_results.empty())
    json["added_results"] = problem.added_results;
  if (!problem.again.empty())
    json["nodes"]["again"] = problem.again;
  if (!problem.places.empty()) {
    json["layers"] = problem.layers;
    json["sources"] = problem.sources;
    for (const auto& place : problem.places) {
      json["nodes"]["layer"].push_back(place.layer);
      json["nodes"]["source"].push_back(place.source);
    }
  }
  // Names of source files are any bytes.
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Problem problem_from_json(const std::string& text) {
  if (const auto why = json_limit_exceeded(text); !why.empty())
    throw std::invalid_argument("not a planning problem: it is " + why);
  Problem problem;
  try {
    const auto json = Json::parse(text);
    if (json.at("format") != "aten_recompute.problem/1")
      throw std::invalid_argument("\"format\" is " + shown_json(json.at("format")) +
                                  ", expected \"aten_recompute.problem/1\"");
    problem = read_problem(json);
  } catch (const Json::exception& error) {
    throw std::invalid_argument("not a planning problem: " + printable(error.what()));
  }
  check_all_indices(problem);
  check_costs(problem);
  check_order(problem);
  check_substitutes(problem);
  check_overwrites(problem);
  return problem;
}

}  // namespace aten_recompute
