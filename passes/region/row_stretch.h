// A stretch of a straight-line graph that works row by row: what belongs to it, and what it reads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "passes/region/row_dimensions.h"

namespace torch::jit {
struct Graph;
}  // namespace torch::jit

namespace aten_recompute {

// The nodes of a graph in their order.
class OrderedNodes {
 public:
  explicit OrderedNodes(torch::jit::Graph& graph);

  size_t size() const { return nodes_.size(); }
  torch::jit::Node* operator[](size_t index) const { return nodes_[index]; }
  // Returns the index of a node; nothing for the node of parameters, or one that was added later.
  std::optional<size_t> index_of(const torch::jit::Node* node) const;

 private:
  std::vector<torch::jit::Node*> nodes_;
  std::unordered_map<const torch::jit::Node*, size_t> index_;
};

// Where a stretch is looked for: it contains the node `seed`, whose result is sliced along
// `dimension` or, with kSummed, is a sum over slices, and no node outside of [begin, end).
struct StretchBounds {
  size_t seed = 0;
  int64_t dimension = 0;
  size_t begin = 0;
  size_t end = 0;
};

// A list of all sizes of a value, of which that of the rows is not the same in each slice.
inline constexpr int64_t kSizesOfSlice = -3;

struct RowStretch {
  int64_t rows = 0;
  std::vector<size_t> nodes;  // indices, in order
  // By value that a node of the stretch makes: the dimension of its rows, kSummed, kWhole for what
  // is the same in each slice, or kSizesOfSlice.
  std::unordered_map<const torch::jit::Value*, int64_t> made;
  // By node of the stretch: rows of its flat operands (rows_of_operands()).
  std::unordered_map<const torch::jit::Node*, std::vector<int64_t>> operand_rows;
  // Nodes that read the number of rows off a value of the stretch. They are not part of it.
  std::vector<torch::jit::Node*> length_reads;
  // Nodes between those of the stretch that depend on it and run after it, in order.
  std::vector<torch::jit::Node*> after;
  // Indices of those of `after` that check the path, by numbers that are the same in each slice.
  // The stretch checks them as well, so that a call that takes another path leaves this one before
  // operators fail that do not belong to its own.
  std::vector<size_t> checks;
  bool may_fail_early = false;  // `after` has other checks
};

// Returns the largest stretch within the bounds that `known` shows to work row by row, or a later
// part of it, if something before the seed needs what can only run after a slice; nothing where
// there is none.
std::optional<RowStretch> find_stretch(const OrderedNodes& nodes, StretchBounds bounds,
                                       const KnownTensors& known);

// What becomes of the size that view() and the like give the dimension of the rows.
enum class SliceSize {
  kNone,       // it cannot be given for a slice, or the node might mean another dimension
  kAsWritten,  // it stays; the node names no sizes, or names -1
  kRowCount,   // it is the number of rows, which is another one in a slice
  kRead,       // it is read off the slice of the value that it was read off
};

// Returns it for a node whose result is sliced along `dimension` and its operand 0 along
// `operand_row`. `made` is that of the stretch.
SliceSize size_of_slice(const torch::jit::Node* node, int64_t dimension, int64_t operand_row,
                        const std::unordered_map<const torch::jit::Value*, int64_t>& made,
                        const KnownTensors& known);

// Returns the value of whose sizes a node reads one: off the value, or off the list of its sizes.
const torch::jit::Value* measured_value(const torch::jit::Node* read);
// Returns the value off which an element of a list of sizes was read; null: it is not known.
const torch::jit::Value* measured_value(const torch::jit::Value* list, size_t element);

}  // namespace aten_recompute
