// What a program said of an operator when it registered a rule for it
// (include/aten_recompute/register_rule.h), as far as questions about nodes need it.
//
// The rules themselves stand in rules/, which knows ir/; so rules/ hands in the function that looks
// them up.
#pragma once

#include <optional>

namespace torch::jit {
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

struct RegisteredFacts {
  std::optional<bool> random;  // without a value, nothing was said
  bool recomputable = true;
  bool has_replay = false;  // a formula says how a second run goes
  bool has_gradients = false;
};

// Returns nullptr where nothing is registered for the node's operator.
using RegisteredFactsLookup = const RegisteredFacts* (*)(const torch::jit::Node* node);

// Called before the first rule is registered. Thread-safe.
void set_registered_facts_lookup(RegisteredFactsLookup lookup);

// What is registered for the node's operator, or nullptr. The result stays valid for good.
const RegisteredFacts* registered_facts(const torch::jit::Node* node);

}  // namespace aten_recompute
