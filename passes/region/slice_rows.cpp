#include "passes/region/slice_rows.h"

#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <unordered_map>
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
    bytes +=
        std::accumulate(tensor.sizes.begin(), tensor.sizes.end(), int64_t{1}, std::multiplies<>()) *
        static_cast<int64_t>(c10::elementSize(tensor.dtype));
  return bytes;
}

// Returns the bytes of a value that a node of the graph makes. Inputs are the caller's.
int64_t made_bytes(const Value* value, const KnownTensors& known) {
  return value->node()->kind() == c10::prim::Param ? 0 : bytes_of(value, known);
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
  const auto is_member = [&](const torch::jit::Use& use) {
    const auto index = nodes.index_of(use.user);
    return index && *index >= begin && *index < end && stretch.operand_rows.count(use.user) != 0;
  };
  const auto is_inside = [&](const torch::jit::Use& use) {
    if (is_member(use) || use.user->kind() != c10::prim::ListConstruct)
      return is_member(use);
    const auto& readers = use.user->output()->uses();  // the list is made again in the stretch
    return std::all_of(readers.begin(), readers.end(), is_member);
  };
  int64_t bytes = 0;
  for (const auto index : stretch.nodes) {
    if (index < begin || index >= end)
      continue;
    for (const auto* output : nodes[index]->outputs()) {
      const auto& uses = output->uses();
      const bool is_list =
          output->type()->kind() == c10::TypeKind::ListType && contains_tensor(*output->type());
      if (is_list && !std::all_of(uses.begin(), uses.end(), is_inside))
        return std::numeric_limits<int64_t>::max() / 8;  // no place to end at
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
  int64_t slices = 0;
  int64_t bytes = 0;  // that it needs beside a slice
};

// Returns the gradients of operands that the caller holds, such as weights: they are whole at the
// end, and one that is summed over slices is there twice.
int64_t bytes_of_gradients(const Node* seed, const RowStretch& stretch, const KnownTensors& known) {
  const auto operands = flat_operands(seed);
  const auto& rows = stretch.operand_rows.at(seed);
  int64_t bytes = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    const auto found = known.find(operands[i]->unique());
    const bool has_gradient = operands[i]->node()->kind() == c10::prim::Param &&
                              found != known.end() && !found->second.empty() &&
                              c10::isFloatingType(found->second[0].dtype);
    if (has_gradient)
      bytes += (rows[i] == kWhole ? 2 : 1) * bytes_of(operands[i], known);
  }
  return bytes;
}

// The limit and the coarseness of one stretch (Slicing).
struct SliceSizes {
  int64_t limit_bytes = 0;
  int64_t coarseness = 1;
};

SliceSizes sizes_of_stretch(const Slicing& slicing, size_t stretch) {
  const auto& coarseness = slicing.coarseness;
  return {slicing.limit_bytes,
          coarseness.empty() ? 1 : coarseness[std::min(stretch, coarseness.size() - 1)]};
}

// Finds stretches around one operator.
class StretchChooser {
 public:
  StretchChooser(const OrderedNodes& nodes, size_t seed, const OperatorNeeds& needs,
                 const SliceSizes& sizes, const KnownTensors& known)
      : nodes_(nodes), seed_(seed), needs_(needs), sizes_(sizes), known_(known) {}

  // Returns the stretch that needs least, over all ways to slice the operator.
  std::optional<Candidate> best() const {
    std::optional<Candidate> best;
    const auto* sizes = sizes_of(nodes_[seed_]->outputs()[0], known_);
    const auto rank = sizes == nullptr ? 0 : static_cast<int64_t>(sizes->size());
    for (int64_t i = kSummed; i < rank; ++i) {
      auto candidate = i == kWhole ? std::nullopt : along(i);
      if (candidate && (!best || candidate->bytes < best->bytes))
        best = std::move(candidate);
    }
    return best;
  }

 private:
  std::optional<Candidate> along(int64_t dimension) const {
    const StretchBounds bounds{seed_, dimension, 0, nodes_.size()};
    const auto stretch = find_stretch(nodes_, bounds, known_);
    return stretch ? narrow(bounds, *stretch) : std::nullopt;
  }

  // Returns a part of the stretch around the seed that reads and writes little.
  std::optional<Candidate> narrow(const StretchBounds& bounds, const RowStretch& stretch) const {
    std::vector<size_t> ends, begins;
    for (const auto index : stretch.nodes) {
      if (index >= seed_)
        ends.push_back(index + 1);
      if (index <= seed_)
        begins.insert(begins.begin(), index);
    }
    const auto enough = sizes_.limit_bytes / 8;
    const auto end = choose_place(ends, enough, [&](size_t place) {
      return bytes_written(nodes_, stretch, begins.back(), place, known_);
    });
    const auto begin = choose_place(begins, enough, [&](size_t place) {
      return bytes_read(nodes_, stretch, place, end, known_);
    });
    auto part = find_stretch(nodes_, {seed_, bounds.dimension, begin, end}, known_);
    if (!part)
      return std::nullopt;
    Candidate candidate{.stretch = std::move(*part)};
    candidate.slices = number_of_slices(candidate.stretch);
    candidate.bytes = needed_bytes(candidate, begin, end);
    return candidate;
  }

  // Returns what the stretch and its gradient need beside the inner values of a slice.
  int64_t needed_bytes(const Candidate& candidate, size_t begin, size_t end) const {
    const auto& stretch = candidate.stretch;
    const auto* seed = nodes_[seed_];
    const bool is_summed = stretch.made.at(seed->outputs()[0]) == kSummed;
    auto bytes = bytes_read(nodes_, stretch, begin, end, known_) +
                 (is_summed ? 2 : 1) * bytes_written(nodes_, stretch, begin, end, known_) +
                 bytes_of_gradients(seed, stretch, known_);
    return bytes + needs_.workspace_bytes / (slices_workspace(stretch) ? candidate.slices : 1);
  }

  // Returns whether a slice of the operator needs a slice of its workspace. Kernels of convolutions
  // copy their weights, or have a copy of the input for each element of a filter.
  bool slices_workspace(const RowStretch& stretch) const {
    constexpr int64_t kCopies = 8;
    const auto* seed = nodes_[seed_];
    const auto& rows = stretch.operand_rows.at(seed);
    if (!is_convolution(seed) || rows[0] == 1)
      return true;
    const bool is_of_weight = needs_.workspace_bytes <= kCopies * bytes_of(seed->input(1), known_);
    return is_of_weight == (rows[0] == kWhole);
  }

  // Returns into how many slices the stretch is divided so that a slice needs little memory.
  int64_t number_of_slices(const RowStretch& stretch) const {
    constexpr int64_t kVector = 16;  // rows that kernels like to have at once
    int64_t bytes = needs_.workspace_bytes;
    for (const auto& [value, dimension] : stretch.made)
      bytes += dimension >= 0 ? 2 * bytes_of(value, known_) : 0;  // and their gradients
    const auto enough = std::max<int64_t>(sizes_.limit_bytes / 8, 1) * sizes_.coarseness;
    const auto slices =
        std::clamp<int64_t>((bytes + enough - 1) / enough, 2, std::min(stretch.rows, kMostSlices));
    const auto length = stretch.rows / slices;
    if (length <= kVector)
      return slices;
    const auto rounded = length / kVector * kVector;
    return std::min((stretch.rows + rounded - 1) / rounded, kMostSlices);
  }

  const OrderedNodes& nodes_;
  const size_t seed_;
  const OperatorNeeds& needs_;
  const SliceSizes& sizes_;
  const KnownTensors& known_;
};

// Returns the operator that needs most, above the limit, of those that have not been tried.
std::optional<size_t> largest_operator(const OrderedNodes& nodes, int64_t limit_bytes,
                                       const std::unordered_map<const Node*, OperatorNeeds>& needs,
                                       const std::unordered_set<const Node*>& tried) {
  std::optional<size_t> largest;
  auto largest_bytes = limit_bytes;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const auto* node = nodes[i];
    const auto found = needs.find(node);
    if (found == needs.end() || tried.count(node) != 0 || node->outputs().empty() ||
        is_pure_view(node) || node->kind() == c10::prim::ListConstruct ||
        found->second.bytes <= largest_bytes)
      continue;
    largest = i;
    largest_bytes = found->second.bytes;
  }
  return largest;
}

// Returns whether each node stands behind those that make its operands.
bool makes_operands_first(Graph& graph) {
  std::unordered_set<const Value*> made(graph.inputs().begin(), graph.inputs().end());
  for (auto* node : graph.nodes()) {
    const auto operands = free_values(node);
    if (!std::all_of(operands.begin(), operands.end(),
                     [&](const Value* operand) { return made.count(operand) != 0; }))
      return false;
    made.insert(node->outputs().begin(), node->outputs().end());
  }
  return true;
}

}  // namespace

SlicedForward slice_rows(const Graph& forward, const ForwardTensors& tensors,
                         const Slicing& slicing) {
  constexpr double kWorthwhile = 0.8;  // of what the operator needs by itself
  SlicedForward sliced{const_cast<Graph&>(forward).copy()};
  auto known = tensors.of(*sliced.graph);
  const auto needs = tensors.needs_of(*sliced.graph);
  std::unordered_set<const Node*> tried;
  while (true) {
    const OrderedNodes nodes(*sliced.graph);
    const auto seed = largest_operator(nodes, slicing.limit_bytes, needs, tried);
    if (!seed)
      break;
    tried.insert(nodes[*seed]);
    const auto& own = needs.at(nodes[*seed]);
    const auto sizes = sizes_of_stretch(slicing, sliced.num_stretches);
    const auto candidate = StretchChooser(nodes, *seed, own, sizes, known).best();
    if (!candidate ||
        static_cast<double>(candidate->bytes) > kWorthwhile * static_cast<double>(own.bytes))
      continue;
    tried.insert(build_sliced(*sliced.graph, nodes, candidate->stretch, candidate->slices, known));
    ++sliced.num_stretches;
    remove_dead_code(sliced.graph->block());
  }
  // A size that one stretch reads may come from another one behind it.
  if (!makes_operands_first(*sliced.graph))
    return {const_cast<Graph&>(forward).copy()};
  return sliced;
}

}  // namespace aten_recompute
