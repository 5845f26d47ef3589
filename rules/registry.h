// Finds the rule of an operator, and compiles what it says.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "rules/rule.h"

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Returns the rule for the node's operator, or nullptr. A user's rule takes precedence.
const Rule* find_rule(const torch::jit::Node* node);

// Returns whether this library has a rule or a replay for the operator.
bool has_builtin_rule(const std::string& op);

// Returns a formula of `rule`, compiled for the schema of `node` when it is first used.
// Thread-safe. Throws std::logic_error that names the rule if TorchScript does not accept the
// formula.
const CompiledFormula& compiled_gradient(const Rule& rule, size_t index,
                                         const torch::jit::Node* node);
// The same for GradientFormula::again, where the rule has one.
const CompiledFormula& compiled_again(const Rule& rule, size_t index, const torch::jit::Node* node);
const CompiledFormula& compiled_forward(const Rule& rule, const torch::jit::Node* node);

// Returns the parts of a composed operator as a formula; nullptr if this node has none.
const CompiledFormula* compiled_parts(const Rule& rule, const torch::jit::Node* node);

// Returns how the node is recomputed if that must differ from its first run (batch norm must not
// update its running statistics twice), as a formula of the node's arguments. nullptr: as in the
// first run.
const CompiledFormula* compiled_replay(const torch::jit::Node* node);

// A cheaper way to recompute outputs of a node, from other outputs that were kept.
struct Replay {
  // Its parameters are the node's arguments and its kept outputs (result, result1, ...).
  CompiledFormula formula;
  std::vector<size_t> reads_outputs;  // indices of the outputs that it reads, ascending
  std::vector<size_t> gives_outputs;  // indices of the outputs that it returns, in this order
};

// Returns the replay for `node`, which gives the same bits as the first run. Returns nullptr if
// there is none, or if an argument that decides it (`training`) is not a constant. Thread-safe.
const Replay* find_replay(const torch::jit::Node* node);

// Returns the rules of this library, for tests and reports.
const std::vector<Rule>& all_rules();

}  // namespace aten_recompute
