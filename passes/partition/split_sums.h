// Makes a region return the gradients of its inputs summand by summand.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Makes each summand of a gradient an output. Autograd's engine adds these up, together with the
// gradients from other readers of the same tensor: other regions, the caller. The order is then
// that of eager: ((c + b) + a) and not c + (b + a), where c comes from a reader behind the region.
// The sums of the joint graph exist for the plan, which counts their memory.
//
// Outputs in `of_casts` are gradients of inputs that are only read as one cast, which readers
// behind the region share. Where such a gradient is a sum, the summands are those of the cast's
// gradient, in its type, so that all are added in the lower precision.
//
// Returns for each new output of `backward` the index of the output that it is a summand of. These
// ascend, and summands of one output stand in the order in which they have to be added.
std::vector<size_t> split_sums(torch::jit::Graph& backward, const std::set<size_t>& of_casts = {});

}  // namespace aten_recompute
