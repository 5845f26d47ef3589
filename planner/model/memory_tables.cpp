#include "planner/model/memory_tables.h"

#include <algorithm>

#include "planner/model/schedule.h"

namespace aten_recompute {
namespace {

int32_t size_of(const auto& items) {
  return static_cast<int32_t>(items.size());
}

}  // namespace

MemoryTables::MemoryTables(const Problem& problem)
    : base_seconds(problem.base_seconds()), is_freed_before_backward(problem.num_values(), 0) {
  find_storages(problem);
  for (size_t node = 0; node < problem.num_all_nodes(); ++node)
    add_node(problem, static_cast<int32_t>(node));
  for (auto value : problem.results) {
    const auto producer = problem.producer[value];
    const bool is_backward = producer >= 0 && !problem.in_forward(producer);
    (is_backward ? backward_results : forward_results).push_back(value);
  }
  for (auto value : problem.freed_before_backward)
    is_freed_before_backward[value] = 1;
}

void MemoryTables::find_storages(const Problem& problem) {
  std::vector<int32_t> row;
  std::vector<int32_t> num_values(problem.num_storages(), 0);
  for (size_t value = 0; value < problem.num_values(); ++value) {
    row.clear();
    for (auto storage : problem.storages[value]) {
      if (!problem.held[storage] && problem.bytes[storage] > 0) {
        row.push_back(storage);
        ++num_values[storage];
      }
    }
    storages.push_back(row);
  }
  for (size_t value = 0; value < problem.num_values(); ++value) {
    const auto used = storages[value];
    const bool is_own = used.size() == 1 && num_values[used[0]] == 1;
    own_bytes.push_back(is_own ? problem.bytes[used[0]] : -1);
  }
}

void MemoryTables::add_node(const Problem& problem, int32_t index) {
  Node node;
  node.seconds = problem.seconds[index];
  node.workspace_bytes = problem.workspace_bytes[index];
  node.replay_bytes = problem.replay_bytes[index];
  node.is_view = problem.is_view[index] != 0;

  node.reads.begin = size_of(reads);
  for (auto value : problem.inputs[index]) {
    const bool is_known = std::any_of(reads.begin() + node.reads.begin, reads.end(),
                                      [&](const Read& read) { return read.value == value; });
    if (!is_known && !storages[value].empty())
      reads.push_back({value, own_bytes[value]});
  }
  node.reads.end = size_of(reads);

  const auto values = problem.outputs[index];
  node.outputs.begin = size_of(outputs);
  for (size_t k = 0; k < values.size(); ++k) {
    if (!storages[values[k]].empty())
      outputs.push_back({values[k], output_bit(k), own_bytes[values[k]]});
  }
  node.outputs.end = size_of(outputs);

  node.overwrites.begin = size_of(overwrites);
  const auto has_one_storage = [&](int32_t value) {
    return storages[value].size() == 1 && problem.storages[value].size() == 1;
  };
  const auto candidates = problem.overwrites[index];
  for (size_t k = 0; k < candidates.size(); ++k) {
    if (!has_one_storage(values[0]) || !has_one_storage(candidates[k]))
      continue;
    const auto from = storages[candidates[k]][0];
    const auto to = storages[values[0]][0];
    if (from != to && problem.bytes[from] == problem.bytes[to])
      overwrites.push_back({candidates[k], from, uint32_t{1} << k, problem.bytes[from]});
  }
  node.overwrites.end = size_of(overwrites);
  nodes.push_back(node);
}

}  // namespace aten_recompute
