// Makes a region return the gradients of its inputs summand by summand.
#pragma once

#include <cstddef>
#include <set>
#include <vector>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// How a gradient that the backward returns is added to those from other readers of its input.
enum class SummandKind {
  kPlain,      // it is one of the gradients of the input
  kOfCast,     // it is one of the gradients of the input's cast, which readers behind it share
  kAfterCast,  // it is one of the input, which is added after the sum of those of the cast
};

struct Summand {
  size_t output;  // of the backward before its sums were split
  SummandKind kind = SummandKind::kPlain;

  bool operator==(const Summand&) const = default;
};

// Makes each summand of a gradient an output. Autograd's engine adds these up, together with the
// gradients from other readers of the same tensor: other regions, the caller. The order is then
// that of eager: ((c + b) + a) and not c + (b + a), where c comes from a reader behind the region.
// The sums of the joint graph exist for the plan, which counts their memory.
//
// Outputs in `of_casts` are gradients of inputs of which the region makes one cast, which readers
// behind the region share. Where the gradient of that cast is itself a sum, its summands become
// outputs, in their type, so that all are added in the lower precision.
//
// Returns what each new output of `backward` is. Their `output` ascends, and summands of one output
// stand in the order in which they have to be added. None of them is kOfCast where it cannot be
// told which summand is that of the cast.
std::vector<Summand> split_sums(torch::jit::Graph& backward, const std::set<size_t>& of_casts = {});

}  // namespace aten_recompute
