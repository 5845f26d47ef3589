// Which slices of its operands an operator needs for a slice of its result.
//
// A row is what lies at one index of a dimension: a sample, a token, an edge. An operator works row
// by row along a dimension of its result if each slice of the result follows from slices of some
// operands and from all of the others:
//
//   linear(x, w, b), dimension 0     x: 0, w: whole, b: whole
//   index_select(x, 0, i)            x: whole, i: 0
//   matmul(a, b), last dimension     a: whole, b: its last
//   softmax(x, 1), dimension 1       not row by row
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "passes/region/known_tensors.h"

namespace aten_recompute {

// Returns, for each of flat_operands(), the dimension along which a slice of it is needed for a
// slice of the node's results along `dimension`, or kWhole (runtime/sliced.h). Returns nothing
// where the node does not work row by row along this dimension, or where that is not known of the
// operator.
std::optional<std::vector<int64_t>> rows_of_operands(const torch::jit::Node* node,
                                                     int64_t dimension, const KnownTensors& known);

// Returns the dimensions of flat operands, as pairs of operand and dimension, that have to be 1 in
// each call because they broadcast along the rows of the result. `dimension` may be kSummed.
std::vector<std::pair<size_t, int64_t>> broadcast_along_rows(const torch::jit::Node* node,
                                                             int64_t dimension,
                                                             const KnownTensors& known);

// Returns what rows_of_operands() does where the results of slices are added up to that of the
// node. `rows` has, per flat operand, the dimension that is sliced as far as that is known.
// index_add() and scatter_add() count as if they added to zeros, and convolutions as if they had no
// bias.
std::optional<std::vector<int64_t>> rows_that_are_summed(
    const torch::jit::Node* node, const std::vector<std::optional<int64_t>>& rows,
    const KnownTensors& known);

// Returns whether the node is a convolution with operands input, weight and bias.
bool is_convolution(const torch::jit::Node* node);

// Returns the index of the operand that lists the sizes of the result, such as that of view(), if
// the node has one.
std::optional<size_t> sizes_operand(const torch::jit::Node* node);

}  // namespace aten_recompute
