// Gradients of a region's inputs leave it summand by summand.
#pragma once

#include <cstddef>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Makes each summand of a gradient an output of its own. Autograd's engine adds them up, and with
// them what others make who read the same tensor: other regions, the caller. So that sum, too, is
// made in eager's order: ((c + b) + a), and not c + (b + a), where c is read behind the region. The
// sums of the joint graph are there for the plan, which counts their memory.
//
// Returns for each output of `backward` which one it was a summand of, ascending; summands stand in
// the order in which they are to be added.
std::vector<size_t> split_sums(torch::jit::Graph& backward);

}  // namespace aten_recompute
