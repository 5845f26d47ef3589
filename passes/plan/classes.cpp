#include "passes/plan/classes.h"

#include <bit>

namespace aten_recompute {
namespace {

// How far nodes look around. Blocks of transformers and residual networks repeat after ten to
// twenty nodes; what stands at their ends differs from what stands within after one or two.
constexpr int kRounds = 3;

// SplitMix64's finaliser, so that sums of hashes do not cancel.
uint64_t mix(uint64_t hash, uint64_t more) {
  hash += 0x9E3779B97F4A7C15ULL + more;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBULL;
  return hash ^ (hash >> 31);
}

}  // namespace

// Colour refinement (Weisfeiler and Leman, 1968), a few rounds of it.
Classes classes_of(const Problem& problem) {
  Classes classes;
  auto& nodes = classes.of_node;
  auto& values = classes.of_value;
  for (size_t node = 0; node < problem.num_all_nodes(); ++node) {
    uint64_t hash = mix(0, std::bit_cast<uint64_t>(problem.seconds[node]));
    hash = mix(hash, std::bit_cast<uint64_t>(problem.flops[node]));
    hash = mix(hash, static_cast<uint64_t>(problem.workspace_bytes[node]));
    hash = mix(hash, problem.recomputable[node] * 4U + problem.is_view[node] * 2U +
                         problem.in_forward(static_cast<int32_t>(node)));
    hash = mix(hash, problem.inputs[node].size());
    nodes.push_back(mix(hash, problem.outputs[node].size()));
  }
  for (size_t value = 0; value < problem.num_values(); ++value) {
    uint64_t hash = 1;
    for (auto storage : problem.storages[value])
      hash = mix(hash, static_cast<uint64_t>(problem.bytes[storage]) * 2 + problem.held[storage]);
    values.push_back(hash);
  }
  for (int round = 0; round < kRounds; ++round) {
    auto next_values = values;
    for (size_t node = 0; node < problem.num_all_nodes(); ++node) {
      const auto before = nodes[node];
      uint64_t hash = before;
      const auto inputs = problem.inputs[node];
      for (size_t k = 0; k < inputs.size(); ++k) {
        hash = mix(hash, values[inputs[k]]);
        next_values[inputs[k]] += mix(before, k);  // readers in any order
      }
      const auto outputs = problem.outputs[node];
      for (size_t k = 0; k < outputs.size(); ++k) {
        hash = mix(hash, values[outputs[k]]);
        next_values[outputs[k]] += mix(before, ~k);
      }
      nodes[node] = hash;
    }
    values = std::move(next_values);
  }
  return classes;
}

}  // namespace aten_recompute
