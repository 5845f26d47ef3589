// Recognizes numbers that a graph is given and that decide how large its tensors are.
#pragma once

#include <vector>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Returns per input of the graph whether it is a number that may decide sizes: an int that
// operators on tensors get as an int (a length, a count), be it by way of arithmetic or in a list,
// a bound of arange, or a factor of an interpolation. What scales elements does not, nor what only
// says which part of a tensor is taken: an index, a dimension, both ends of a slice that moves.
std::vector<bool> numbers_that_decide_sizes(const torch::jit::Graph& graph);

}  // namespace aten_recompute
