#include "planner/search/equivalence_classes.h"

#include <algorithm>
#include <bit>
#include <set>

namespace aten_recompute {
namespace {

// The distance in nodes up to which surroundings count. Blocks of transformers and ResNets repeat
// after ten to twenty nodes; one or two nodes tell the ends of a block from its middle.
constexpr int kRounds = 3;
// With more kinds of values than this, sizes are ignored, because layers may correspond although
// their sizes differ: each layer of a DenseNet reads more than the one before.
constexpr size_t kManyKinds = 700;

// SplitMix64's finalizer, so that sums of hashes do not cancel.
uint64_t mix(uint64_t hash, uint64_t more) {
  hash += 0x9E3779B97F4A7C15ULL + more;
  hash = (hash ^ (hash >> 30)) * 0xBF58476D1CE4E5B9ULL;
  hash = (hash ^ (hash >> 27)) * 0x94D049BB133111EBULL;
  return hash ^ (hash >> 31);
}

// Returns a hash of the node without its surroundings. `coarse`: sizes and costs are ignored.
uint64_t hash_of(const Problem& problem, size_t node, bool coarse) {
  uint64_t hash = mix(0, problem.recomputable[node] * 4U + problem.is_view[node] * 2U +
                             problem.in_forward(static_cast<int32_t>(node)));
  // Nodes of the forward that are served differ from others, and from those of the backward.
  if (node >= problem.first_served() && node < problem.num_forward)
    hash = mix(hash, 1);
  hash = mix(hash, problem.outputs[node].size());
  if (coarse)
    return mix(hash, problem.flops[node] > 0.0);
  hash = mix(hash, std::bit_cast<uint64_t>(problem.seconds[node]));
  hash = mix(hash, std::bit_cast<uint64_t>(problem.flops[node]));
  hash = mix(hash, static_cast<uint64_t>(problem.workspace_bytes[node]));
  return mix(hash, problem.inputs[node].size());
}

// Adds the hashes of neighbors to a hash. `coarse`: neighbors are a set, each counts once.
uint64_t combine(uint64_t hash, std::vector<uint64_t>& neighbors, bool coarse) {
  if (coarse) {
    std::sort(neighbors.begin(), neighbors.end());
    neighbors.erase(std::unique(neighbors.begin(), neighbors.end()), neighbors.end());
  }
  for (auto neighbor : neighbors)
    hash = mix(hash, neighbor);
  return hash;
}

// Does a few rounds of color refinement (Weisfeiler and Leman, 1968).
EquivalenceClasses refine(const Problem& problem, bool coarse) {
  EquivalenceClasses classes;
  auto& nodes = classes.of_node;
  auto& values = classes.of_value;
  for (size_t node = 0; node < problem.num_all_nodes(); ++node)
    nodes.push_back(hash_of(problem, node, coarse));
  for (size_t value = 0; value < problem.num_values(); ++value) {
    uint64_t hash = 1;
    for (auto storage : problem.storages[value]) {
      const auto bytes = coarse ? 1 : static_cast<uint64_t>(problem.bytes[storage]);
      hash = mix(coarse ? 1 : hash, bytes * 2 + problem.held[storage]);
    }
    values.push_back(hash);
  }
  std::vector<uint64_t> neighbors;
  std::vector<std::vector<uint64_t>> around(problem.num_values());  // readers, and the producer
  for (int round = 0; round < kRounds; ++round) {
    for (size_t node = 0; node < problem.num_all_nodes(); ++node) {
      const auto before = nodes[node];
      neighbors.clear();
      const auto inputs = problem.inputs[node];
      for (size_t k = 0; k < inputs.size(); ++k) {
        neighbors.push_back(values[inputs[k]]);
        around[inputs[k]].push_back(mix(before, coarse ? 0 : k));
      }
      const auto outputs = problem.outputs[node];
      for (size_t k = 0; k < outputs.size(); ++k) {
        neighbors.push_back(mix(values[outputs[k]], 1));
        around[outputs[k]].push_back(mix(before, ~k));
      }
      nodes[node] = combine(before, neighbors, coarse);
    }
    for (size_t value = 0; value < problem.num_values(); ++value) {
      std::sort(around[value].begin(), around[value].end());
      values[value] = combine(values[value], around[value], coarse);
      around[value].clear();
    }
  }
  return classes;
}

}  // namespace

EquivalenceClasses classes_of(const Problem& problem) {
  auto classes = refine(problem, /*coarse=*/false);
  const std::set<uint64_t> kinds(classes.of_value.begin(), classes.of_value.end());
  return kinds.size() <= kManyKinds ? classes : refine(problem, /*coarse=*/true);
}

}  // namespace aten_recompute
