#include "planner/model/problem.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace aten_recompute {

int64_t Problem::value_bytes(int32_t value) const {
  int64_t sum = 0;
  for (auto storage : storages[value])
    sum += held[storage] ? 0 : bytes[storage];
  return sum;
}

double Problem::base_seconds() const {
  double sum = 0.0;
  for (size_t node = 0; node < num_nodes; ++node)
    sum += optional[node] ? 0.0 : seconds[node];
  return sum;
}

JaggedArray base_values(const Problem& problem) {
  std::vector<std::vector<int32_t>> found(problem.num_values());
  for (size_t value = 0; value < problem.num_values(); ++value) {
    // Producers come in order of their index, so what a view reads has its roots already.
    const auto node = problem.producer[value];
    if (node < 0 || !problem.is_view[node]) {
      found[value] = {static_cast<int32_t>(value)};
      continue;
    }
    for (auto input : problem.inputs[node])
      found[value].insert(found[value].end(), found[input].begin(), found[input].end());
    std::sort(found[value].begin(), found[value].end());
    found[value].erase(std::unique(found[value].begin(), found[value].end()), found[value].end());
  }
  JaggedArray rows;
  for (const auto& row : found)
    rows.push_back(row);
  return rows;
}

std::vector<uint8_t> read_by_backward(const Problem& problem, const JaggedArray& base_values) {
  std::vector<uint8_t> is_read(problem.num_values(), 0);
  for (size_t node = problem.num_forward; node < problem.num_nodes; ++node) {
    for (auto value : problem.inputs[node]) {
      for (auto root : base_values[value])
        is_read[root] = 1;
    }
  }
  return is_read;
}

namespace {

using Json = nlohmann::json;

Json rows_to_json(const JaggedArray& rows) {
  auto json = Json::array();
  for (size_t i = 0; i < rows.size(); ++i)
    json.push_back(std::vector<int32_t>(rows[i].begin(), rows[i].end()));
  return json;
}

JaggedArray rows_from_json(const Json& json) {
  JaggedArray rows;
  for (const auto& row : json)
    rows.push_back(row.get<std::vector<int32_t>>());
  return rows;
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

}  // namespace

std::string to_json(const Problem& problem) {
  const Json json = {
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
  return json.dump();
}

Problem problem_from_json(const std::string& text) {
  Problem problem;
  try {
    const auto json = Json::parse(text);
    if (json.at("format") != "aten_recompute.problem/1")
      throw std::invalid_argument("\"format\" is " + json.at("format").dump() +
                                  ", expected \"aten_recompute.problem/1\"");
    problem.num_forward = json.at("num_forward");
    problem.num_nodes = json.at("num_nodes");
    const auto& nodes = json.at("nodes");
    problem.node_names = nodes.at("name");
    problem.inputs = rows_from_json(nodes.at("inputs"));
    problem.outputs = rows_from_json(nodes.at("outputs"));
    problem.overwrites = rows_from_json(nodes.at("overwrites"));
    problem.seconds = nodes.at("seconds").get<std::vector<double>>();
    problem.flops = nodes.at("flops").get<std::vector<double>>();
    problem.workspace_bytes = nodes.at("workspace_bytes").get<std::vector<int64_t>>();
    problem.replay_bytes = nodes.value("replay_bytes", std::vector<int64_t>{});
    problem.recomputable = nodes.at("recomputable").get<std::vector<uint8_t>>();
    problem.is_view = nodes.at("is_view").get<std::vector<uint8_t>>();
    problem.alternatives = rows_from_json(nodes.at("alternatives"));
    problem.optional = nodes.at("optional").get<std::vector<uint8_t>>();
    const auto& values = json.at("values");
    problem.value_names = values.at("name");
    problem.producer = values.at("producer").get<std::vector<int32_t>>();
    problem.storages = rows_from_json(values.at("storages"));
    problem.bytes = json.at("storages").at("bytes").get<std::vector<int64_t>>();
    problem.held = json.at("storages").at("held").get<std::vector<uint8_t>>();
    problem.results = json.at("results").get<std::vector<int32_t>>();
    problem.freed_before_backward = json.value("let_go", std::vector<int32_t>{});
    problem.incoming = json.at("incoming").get<std::vector<int32_t>>();
    problem.loss_bytes = json.value("loss_bytes", int64_t{0});
    problem.held_by_caller = json.value("held_by_caller", int64_t{0});
  } catch (const Json::exception& error) {
    throw std::invalid_argument(std::string("not a planning problem: ") + error.what());
  }
  const size_t nodes = problem.seconds.size();
  for (size_t size :
       {problem.node_names.size(), problem.inputs.size(), problem.outputs.size(),
        problem.overwrites.size(), problem.flops.size(), problem.workspace_bytes.size(),
        problem.recomputable.size(), problem.is_view.size(), problem.alternatives.size(),
        problem.optional.size()}) {
    if (size != nodes)
      throw std::invalid_argument("not a planning problem: lists of \"nodes\" differ in length");
  }
  if (!problem.replay_bytes.empty() && problem.replay_bytes.size() != nodes)
    throw std::invalid_argument("not a planning problem: lists of \"nodes\" differ in length");
  if (problem.num_nodes > nodes || problem.num_forward > problem.num_nodes ||
      problem.storages.size() != problem.num_values() ||
      problem.value_names.size() != problem.num_values() ||
      problem.held.size() != problem.bytes.size()) {
    throw std::invalid_argument("not a planning problem: counts and lists do not agree");
  }
  check_indices(problem.inputs, problem.num_values(), "inputs");
  check_indices(problem.outputs, problem.num_values(), "outputs");
  check_indices(problem.overwrites, problem.num_values(), "overwrites");
  check_indices(problem.alternatives, nodes, "alternatives");
  check_indices(problem.storages, problem.num_storages(), "storages");
  for (auto node : problem.producer)
    check_index(node, -1, nodes, "producer");
  for (auto value : problem.results)
    check_index(value, 0, problem.num_values(), "results");
  for (auto value : problem.freed_before_backward)
    check_index(value, 0, problem.num_values(), "let_go");
  for (auto value : problem.incoming)
    check_index(value, 0, problem.num_values(), "incoming");
  return problem;
}

}  // namespace aten_recompute
