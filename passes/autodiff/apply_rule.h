// Applies the gradient rule of an operator.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "passes/autodiff/gradient_sums.h"
#include "rules/rule.h"

namespace aten_recompute {

enum class FormulaUse {
  kOnce,   // nothing differentiates what the formula computes
  kAgain,  // it is differentiated again
};

// A rule bound to the values of one forward node: what its backward needs.
struct AppliedRule {
  const Rule* rule = nullptr;
  FormulaUse use = FormulaUse::kOnce;
  std::vector<const CompiledFormula*> formulas;  // in the order of `rule->gradients`
  // The operator's arguments, in the order and with the names of its schema.
  std::vector<std::pair<std::string, torch::jit::Value*>> arguments;
  std::vector<torch::jit::Value*> outputs;
  // By the names that formulas use: arguments, outputs ("result", "result1") and extras.
  std::unordered_map<std::string, torch::jit::Value*> names;
};

// Marks in `sums` the outputs of `node` that require grad. If the rule has a forward, inserts it in
// place of `node`, which is destroyed, and adds to `gradient_path` the Value::unique() of each
// value inside it that a gradient passes through. Throws std::logic_error where the rule is wrong.
AppliedRule apply_rule_forward(torch::jit::Node* node, const Rule& rule, GradientSums& sums,
                               std::unordered_set<size_t>& gradient_path);

// The same, but leaves the node as it is, so that it can be differentiated once more: of the rule's
// forward only the extras are computed beside it. A forward that draws random numbers takes the
// node's place nevertheless. `create_graph`: the formulas are those that eager runs to
// differentiate them again.
AppliedRule apply_rule_beside(torch::jit::Node* node, const Rule& rule, GradientSums& sums,
                              bool create_graph);

// Puts the rule's forward, which has no extras, in the place of the node. No gradient is needed of
// it, but kernels depend on what has requires_grad.
void replace_by_forward(torch::jit::Node* node, const Rule& rule, const GradientSums& sums);

// Replaces a composed operator by its parts, and returns them in their order. Returns an empty list
// and changes nothing if the rule has no parts for this node, or if control flow would be left
// among them.
std::vector<torch::jit::Node*> replace_by_parts(torch::jit::Node* node, const Rule& rule,
                                                GradientSums& sums);

// Inserts the formulas of those arguments that require grad, and adds what they return to `sums`.
// Does nothing where no output has a gradient. Throws std::logic_error where the rule is wrong.
void insert_rule_backward(const AppliedRule& applied, GradientSums& sums);

}  // namespace aten_recompute
