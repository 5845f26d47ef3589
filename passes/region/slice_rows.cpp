#include "passes/region/slice_rows.h"

#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/dead_code.h"
#include "ir/node_traits.h"
#include "passes/region/build_sliced.h"
#include "passes/region/row_stretch.h"
#include "runtime/sliced.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

constexpr int64_t kMostSlices = 64;

int64_t bytes_of(const Value* value, const KnownTensors& known) {
  const auto found = known.find(value->unique());
  if (found == known.end())
    return 0;
  int64_t bytes = 0;
  for (const auto& tensor : found->second)
    bytes += std::accumulate(tensor.sizes.begin(), tensor.sizes.end(), int64_t{1},
                             std::multiplies<>()) *
             static_cast<int64_t>(c10::elementSize(tensor.dtype));
  return bytes;
}

// Returns the bytes of a value that a node of the graph makes. Inputs are the caller's.
int64_t made_bytes(const Value* value, const KnownTensors& known) {
  return value->node()->kind() == c10::prim::Param ? 0 : bytes_of(value, known);
}

// Returns what an operator reads and writes.
int64_t own_bytes(const Node* node, const KnownTensors& known) {
  int64_t bytes = 0;
  for (const auto* operand : flat_operands(node))
    bytes += made_bytes(operand, known);
  for (const auto* output : node->outputs())
    bytes += bytes_of(output, known);
  return bytes;
}

// Returns the operands of the stretch's nodes in [begin, end) that are sliced and that no node of
// the stretch in that range makes.
std::unordered_set<const Value*> sliced_operands(const OrderedNodes& nodes,
                                                 const RowStretch& stretch, size_t begin,
                                                 size_t end) {
  std::unordered_set<const Value*> found;
  for (const auto index : stretch.nodes) {
    if (index < begin || index >= end)
      continue;
    const auto operands = flat_operands(nodes[index]);
    const auto& rows = stretch.operand_rows.at(nodes[index]);
    for (size_t i = 0; i < operands.size(); ++i) {
      const bool is_inside = stretch.made.count(operands[i]) != 0 &&
                             nodes.index_of(operands[i]->node()).value() >= begin;
      if (rows[i] != kWhole && !is_inside)
        found.insert(operands[i]);
    }
  }
  return found;
}

// Returns the bytes that the stretch reads if it begins and ends there.
int64_t bytes_read(const OrderedNodes& nodes, const RowStretch& stretch, size_t begin, size_t end,
                   const KnownTensors& known) {
  int64_t bytes = 0;
  for (const auto* operand : sliced_operands(nodes, stretch, begin, end))
    bytes += made_bytes(operand, known);
  return bytes;
}

// Returns the bytes of what nodes of the stretch in [begin, end) make for others.
int64_t bytes_written(const OrderedNodes& nodes, const RowStretch& stretch, size_t begin,
                      size_t end, const KnownTensors& known) {
  const auto is_inside = [&](const torch::jit::Use& use) {
    const auto index = nodes.index_of(use.user);
    return index && *index >= begin && *index < end && stretch.operand_rows.count(use.user) != 0;
  };
  int64_t bytes = 0;
  for (const auto index : stretch.nodes) {
    if (index < begin || index >= end)
      continue;
    for (const auto* output : nodes[index]->outputs()) {
      const auto& uses = output->uses();
      if (!std::all_of(uses.begin(), uses.end(), is_inside))
        bytes += bytes_of(output, known);
    }
  }
  return bytes;
}

// Returns the first of the places at which the cost is at most `enough`; otherwise the one at
// which it is smallest.
size_t choose_place(const std::vector<size_t>& places, int64_t enough,
                    const std::function<int64_t(size_t)>& cost) {
  size_t best = places.front();
  auto best_cost = std::numeric_limits<int64_t>::max();
  for (const auto place : places) {
    const auto bytes = cost(place);
    if (bytes <= enough)
      return place;
    if (bytes < best_cost) {
      best_cost = bytes;
      best = place;
    }
  }
  return best;
}

struct Candidate {
  RowStretch stretch;
  int64_t bytes = 0;  // of what it reads and writes
};

// Returns a part of the stretch around the seed that reads and writes little.
std::optional<Candidate> narrow_stretch(const OrderedNodes& nodes, const StretchBounds& seed,
                                        const RowStretch& stretch, int64_t limit_bytes,
                                        const KnownTensors& known) {
  std::vector<size_t> ends, begins;
  for (const auto index : stretch.nodes) {
    if (index >= seed.seed)
      ends.push_back(index + 1);
    if (index <= seed.seed)
      begins.insert(begins.begin(), index);
  }
  const auto enough = limit_bytes / 8;
  const auto end = choose_place(ends, enough, [&](size_t place) {
    return bytes_written(nodes, stretch, begins.back(), place, known);
  });
  const auto begin = choose_place(begins, enough, [&](size_t place) {
    return bytes_read(nodes, stretch, place, end, known);
  });
  auto part = find_stretch(nodes, {seed.seed, seed.dimension, begin, end}, known);
  if (!part)
    return std::nullopt;
  const auto bytes = bytes_read(nodes, *part, begin, end, known) +
                     bytes_written(nodes, *part, begin, end, known);
  return Candidate{std::move(*part), bytes};
}

// Returns the stretch around an operator that reads and writes least, over all dimensions.
std::optional<Candidate> best_stretch(const OrderedNodes& nodes, size_t seed, int64_t limit_bytes,
                                      const KnownTensors& known) {
  std::optional<Candidate> best;
  const auto* sizes = sizes_of(nodes[seed]->outputs()[0], known);
  const auto rank = sizes == nullptr ? 0 : static_cast<int64_t>(sizes->size());
  for (int64_t i = 0; i < rank; ++i) {
    StretchBounds bounds{seed, i, 0, nodes.size()};
    auto stretch = find_stretch(nodes, bounds, known);
    if (!stretch) {
      bounds.begin = seed;
      stretch = find_stretch(nodes, bounds, known);
    }
    if (!stretch)
      continue;
    auto candidate = narrow_stretch(nodes, bounds, *stretch, limit_bytes, known);
    if (candidate && (!best || candidate->bytes < best->bytes))
      best = std::move(candidate);
  }
  return best;
}

// Returns into how many slices the stretch is divided so that a slice needs little memory.
int64_t number_of_slices(const RowStretch& stretch, int64_t limit_bytes,
                         const KnownTensors& known) {
  int64_t bytes = 0;
  for (const auto& [value, dimension] : stretch.made)
    bytes += dimension >= 0 ? bytes_of(value, known) : 0;
  // The backward has the values and their gradients.
  const auto enough = std::max<int64_t>(limit_bytes / 8, 1);
  return std::clamp<int64_t>((2 * bytes + enough - 1) / enough, 2,
                             std::min(stretch.rows, kMostSlices));
}

// Returns the largest operator that needs more than the limit with its gradient and has not been
// tried.
std::optional<size_t> largest_operator(const OrderedNodes& nodes, int64_t limit_bytes,
                                       const KnownTensors& known,
                                       const std::unordered_set<const Node*>& tried) {
  std::optional<size_t> largest;
  auto largest_bytes = limit_bytes / 2;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto* node = nodes[i];
    if (tried.count(node) != 0 || node->outputs().empty() || is_pure_view(node) ||
        node->kind() == c10::prim::ListConstruct)
      continue;
    const auto bytes = own_bytes(node, known);
    if (bytes <= largest_bytes)
      continue;
    largest = i;
    largest_bytes = bytes;
  }
  return largest;
}

}  // namespace

SlicedForward slice_rows(const Graph& forward, const ForwardTensors& tensors,
                         int64_t limit_bytes) {
  constexpr double kWorthwhile = 0.8;  // of what the operator reads and writes by itself
  SlicedForward sliced{const_cast<Graph&>(forward).copy()};
  auto known = tensors.of(*sliced.graph);
  std::unordered_set<const Node*> tried;
  while (true) {
    const OrderedNodes nodes(*sliced.graph);
    const auto seed = largest_operator(nodes, limit_bytes, known, tried);
    if (!seed)
      break;
    const auto* node = nodes[*seed];
    tried.insert(node);
    const auto candidate = best_stretch(nodes, *seed, limit_bytes, known);
    const auto own = static_cast<double>(own_bytes(node, known));
    if (!candidate || static_cast<double>(candidate->bytes) > kWorthwhile * own)
      continue;
    const auto slices = number_of_slices(candidate->stretch, limit_bytes, known);
    tried.insert(build_sliced(*sliced.graph, nodes, candidate->stretch, slices, known));
    ++sliced.num_stretches;
  }
  if (sliced.num_stretches > 0)
    remove_dead_code(sliced.graph->block());
  return sliced;
}

}  // namespace aten_recompute
