// Decides whether a forward node may run again in the backward, and what a second run needs.
#pragma once

namespace torch::jit {
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// The reason why a forward node is not recomputed in the backward.
enum class RecomputeVeto { kNone, kMutates, kControlFlow, kRule, kReadsWritten };

// Returns the reason why `node` may not run again, or kNone if it may.
RecomputeVeto recompute_veto(const torch::jit::Node* node);

// Returns the reason as text, for reports.
const char* to_string(RecomputeVeto veto);

// Returns whether a second run needs the generator's state from before the first run.
bool draws_random_numbers(const torch::jit::Node* node);
// Returns whether an operator that may draw random numbers draws none, because its dropout is off.
bool has_no_dropout(const torch::jit::Node* node);

}  // namespace aten_recompute
