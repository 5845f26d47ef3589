#include "planner/model/problem.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace aten_recompute {

namespace {

const std::string& text_at(const std::vector<std::string>& texts, int32_t index) {
  static const std::string none;
  return index < 0 ? none : texts[index];
}

}  // namespace

const std::string& Problem::layer_of(int32_t node) const {
  return text_at(layers, places.empty() ? -1 : places[node].layer);
}

const std::string& Problem::source_of(int32_t node) const {
  return text_at(sources, places.empty() ? -1 : places[node].source);
}

int64_t Problem::value_bytes(int32_t value) const {
  int64_t sum = 0;
  for (auto storage : storages[value])
    sum += held[storage] ? 0 : bytes[storage];
  return sum;
}

int64_t Problem::incoming_bytes() const {
  int64_t sum = 0;
  for (auto value : incoming)
    sum += value_bytes(value);
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
    // Values are in the order of their producers, so those that a view reads are known already.
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
      for (auto base : base_values[value])
        is_read[base] = 1;
    }
  }
  return is_read;
}

std::vector<int32_t> last_slots_of_forward(const Problem& problem, const JaggedArray& base_values) {
  std::vector<int32_t> slots(problem.num_values(), 0);
  for (auto node = problem.first_served(); node < problem.num_forward; ++node) {
    for (const auto values : {problem.inputs[node], problem.outputs[node]}) {
      for (auto value : values) {
        for (auto base : base_values[value])
          slots[base] = problem.slot_of(node);
      }
    }
  }
  return slots;
}

}  // namespace aten_recompute
