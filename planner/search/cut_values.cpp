#include "planner/search/cut_values.h"

#include <algorithm>

#include "planner/search/valleys.h"

namespace aten_recompute {
namespace {

constexpr size_t kMostCuts = 64;

// Adds the values alive at cuts of the nodes [begin, end).
void add_cut_values(const Problem& problem, const std::vector<int32_t>& droppable,
                    const JaggedArray& bases, size_t begin, size_t end,
                    std::vector<int32_t>& found) {
  std::vector<int32_t> last_use(problem.num_values(), -1);
  for (auto node = begin; node < end; ++node) {
    for (auto input : problem.inputs[node]) {
      for (auto base : bases[input])
        last_use[base] = static_cast<int32_t>(node - begin);
    }
  }
  struct Span {
    int32_t value;
    int32_t made;
    int32_t read;  // for the last time
  };
  std::vector<Span> spans;
  std::vector<int64_t> alive(end - begin + 1, 0);
  for (auto value : droppable) {
    const auto producer = static_cast<size_t>(problem.producer[value]);
    if (producer < begin || producer >= end)
      continue;
    const Span span{value, static_cast<int32_t>(producer - begin), last_use[value]};
    if (span.read <= span.made)
      continue;
    spans.push_back(span);
    alive[span.made] += problem.value_bytes(value);
    alive[span.read] -= problem.value_bytes(value);
  }
  for (size_t i = 1; i < alive.size(); ++i)
    alive[i] += alive[i - 1];
  const auto cuts = lowest_of_neighbors(valleys_of(alive), kMostCuts);
  for (const auto& span : spans) {
    const bool is_cut = std::any_of(cuts.begin(), cuts.end(), [&](const auto& cut) {
      return span.made <= cut.second && cut.second < span.read;
    });
    if (is_cut)
      found.push_back(span.value);
  }
}

}  // namespace

std::vector<int32_t> cut_values(const Problem& problem, const std::vector<int32_t>& droppable) {
  const auto bases = base_values(problem);
  std::vector<int32_t> found;
  add_cut_values(problem, droppable, bases, 0, problem.first_served(), found);
  add_cut_values(problem, droppable, bases, problem.first_served(), problem.num_forward, found);
  return found;
}

}  // namespace aten_recompute
