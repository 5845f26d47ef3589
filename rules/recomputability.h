// Whether a forward node may run again in the backward, and what a second run needs.
#pragma once

namespace torch::jit {
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// Why a forward node is not computed again in the backward.
enum class RecomputeVeto { kNone, kMutates, kControlFlow, kRule, kReadsWritten };
RecomputeVeto recompute_veto(const torch::jit::Node* node);
const char* to_string(RecomputeVeto veto);

// Returns true if a second run needs the generator's state from before the first run.
bool draws_random_numbers(const torch::jit::Node* node);

}  // namespace aten_recompute
