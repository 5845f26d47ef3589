#include "planner/model/schedule_tables.h"

#include <algorithm>

namespace aten_recompute {
namespace {

// Returns whether a node makes no tensors and takes neither time nor memory.
bool only_looks(const Problem& problem, size_t node) {
  return problem.outputs[node].empty() && problem.seconds[node] == 0.0 &&
         problem.workspace_bytes[node] == 0;
}

JaggedArray to_jagged_array(const std::vector<std::vector<int32_t>>& rows) {
  JaggedArray array;
  for (const auto& row : rows)
    array.push_back(row);
  return array;
}

// Returns, per value, whether it must stay in memory because the caller holds it and the backward
// reads it: dropping it would free nothing, and recomputing it would need memory for a copy.
//
// Outputs that the backward does not read are not among them. The caller may change such an output
// in place, as in eager mode, so nothing may be computed from it later.
std::vector<uint8_t> held_by_caller(const Problem& problem, const JaggedArray& base_values) {
  const auto is_read = read_by_backward(problem, base_values);
  std::vector<uint8_t> is_held(problem.num_values(), 0);
  for (auto value : problem.results) {
    for (auto base : base_values[value])
      is_held[base] = is_read[base];
  }
  return is_held;
}

}  // namespace

ScheduleTables::ScheduleTables(const Problem& problem)
    : base_values(aten_recompute::base_values(problem)), is_idle(problem.num_all_nodes() + 1, 0) {
  for (auto node = problem.first_served(); node < problem.num_forward; ++node)
    is_idle[node] = only_looks(problem, node) || problem.optional[node] != 0;
  find_values(problem);
  find_absent_after_loss(problem);
  find_view_spans(problem);
  find_first_steps(problem);
  find_overwrites(problem);
}

void ScheduleTables::find_values(const Problem& problem) {
  const auto is_held = held_by_caller(problem, base_values);
  std::vector<std::vector<int32_t>> views_of(problem.num_values());
  is_recomputable.assign(problem.num_values(), 0);
  available_at_start.assign(problem.num_values(), kFromForward);
  for (size_t i = 0; i < problem.num_values(); ++i) {
    const auto value = static_cast<int32_t>(i);
    const auto node = problem.producer[value];
    if (node < 0)
      continue;
    const bool is_made_later = static_cast<size_t>(node) >= problem.first_served();
    if (is_made_later)
      available_at_start[value] = kAbsent;
    if (!problem.in_forward(node))
      continue;
    if (problem.is_view[node]) {
      for (auto base : base_values[value])
        views_of[base].push_back(value);
      // The backward makes views again; what they view is kept instead.
      if (problem.num_served_forward == 0 && problem.recomputable[node])
        available_at_start[value] = kAbsent;
    } else if (problem.recomputable[node] && !problem.optional[node] && !is_held[value] &&
               !problem.is_must_save(value)) {
      is_recomputable[value] = 1;
      recomputable.push_back(value);
      if (problem.value_bytes(value) > 0)
        droppable.push_back(value);
    }
  }
  views = to_jagged_array(views_of);
}

void ScheduleTables::find_absent_after_loss(const Problem& problem) {
  stays_before_loss.assign(problem.num_values(), 0);
  if (problem.num_served_forward == 0)
    return;
  for (auto result : problem.results) {
    for (auto base : base_values[result])
      stays_before_loss[base] = is_recomputable[base];
  }
  for (size_t i = 0; i < problem.num_values(); ++i) {
    const auto value = static_cast<int32_t>(i);
    const auto node = problem.producer[value];
    const bool is_view = node >= 0 && problem.in_forward(node) && problem.is_view[node] &&
                         problem.recomputable[node];
    if (is_view || stays_before_loss[value] != 0)
      absent_after_loss.push_back(value);
  }
}

void ScheduleTables::find_view_spans(const Problem& problem) {
  std::vector<int32_t> last_use(problem.num_values(), 0);
  for (size_t node = problem.num_forward; node < problem.num_nodes; ++node) {
    const auto slot = problem.slot_of(node);
    for (auto value : problem.inputs[node])
      last_use[value] = slot;
    for (auto alternative : problem.alternatives[node]) {
      for (auto value : problem.inputs[alternative])
        last_use[value] = slot;
    }
  }
  for (auto value : problem.results)
    last_use[value] = problem.slot_of(problem.num_nodes);
  std::vector<std::vector<int32_t>> spans(problem.num_values());
  for (size_t value = 0; value < problem.num_values(); ++value) {
    const auto node = problem.producer[value];
    if (node < 0 || problem.in_forward(node) || !problem.is_view[node])
      continue;
    for (auto base : base_values[value])
      spans[base].insert(spans[base].end(),
                         {problem.slot_of(static_cast<size_t>(node)), last_use[value]});
  }
  view_spans = to_jagged_array(spans);
}

void ScheduleTables::find_first_steps(const Problem& problem) {
  std::vector<uint8_t> read_later(problem.num_values(), 0);
  for (auto node = problem.first_served(); node-- > 0;) {
    const auto inputs = problem.inputs[node];
    // A node that only looks at sizes does not matter where a later node reads the same tensors.
    if (only_looks(problem, node) && std::all_of(inputs.begin(), inputs.end(), [&](int32_t value) {
          return read_later[value] != 0;
        })) {
      continue;
    }
    for (auto value : inputs)
      read_later[value] = 1;
    first_steps.push_back({static_cast<int32_t>(node), 0});
    any_optional = any_optional || problem.optional[node] != 0;
  }
  std::reverse(first_steps.begin(), first_steps.end());
}

void ScheduleTables::find_overwrites(const Problem& problem) {
  may_overwrite_forward.assign(problem.num_all_nodes(), 0);
  for (size_t node = 0; node < problem.num_all_nodes(); ++node) {
    for (auto value : problem.overwrites[node]) {
      for (auto base : base_values[value]) {
        const auto producer = problem.producer[base];
        if (producer < 0 || problem.in_forward(producer))
          may_overwrite_forward[node] = 1;
      }
    }
  }
}

TrackedValues::TrackedValues(const Problem& problem, const ScheduleTables& tables,
                             const std::vector<int32_t>& values)
    : is_tracked(problem.num_values(), 0), first_base(problem.num_values(), -1) {
  for (auto value : values)
    is_tracked[value] = tables.is_recomputable[value];
  std::vector<int32_t> row;
  for (size_t value = 0; value < problem.num_values(); ++value) {
    row.clear();
    for (auto base : tables.base_values[value]) {
      if (is_tracked[base])
        row.push_back(base);
    }
    if (!row.empty())
      first_base[value] = row[0];
    bases.push_back(row);
  }
  const auto may_be_absent = [&](int32_t value) {
    const auto producer = problem.producer[value];
    const bool is_backward = producer >= 0 && !problem.in_forward(producer) &&
                             static_cast<size_t>(producer) < problem.num_nodes;
    return producer >= 0 && !is_backward &&
           (tables.is_recomputable[value] || problem.optional[producer] ||
            tables.available_at_start[value] == kAbsent);
  };
  for (size_t node = 0; node < problem.num_all_nodes(); ++node) {
    row.clear();
    for (auto input : problem.inputs[node]) {
      if (may_be_absent(input) || first_base[input] >= 0)
        row.push_back(input);
    }
    needs.push_back(row);
  }
}

}  // namespace aten_recompute
