// The part of a rule that a program registered (include/aten_recompute/register_rule.h) which
// ir/node_traits.h needs.
//
// The rules themselves are in rules/, which ir/ must not include; so rules/ passes in the function
// that looks them up.
#pragma once

#include <optional>

namespace torch::jit {
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

struct RegisteredFacts {
  std::optional<bool> random;  // nullopt: not given
  bool recomputable = true;
  bool has_replay = false;     // a formula computes the outputs again
  bool has_gradients = false;  // formulas compute the gradients
};

// Returns nullptr if nothing is registered for the node's operator.
using RegisteredFactsLookup = const RegisteredFacts* (*)(const torch::jit::Node* node);

// Sets the function that registered_facts() calls. Thread-safe.
void set_registered_facts_lookup(RegisteredFactsLookup lookup);

// Returns what is registered for the node's operator, or nullptr. The result stays valid forever.
const RegisteredFacts* registered_facts(const torch::jit::Node* node);

}  // namespace aten_recompute
