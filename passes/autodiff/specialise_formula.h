// A rule's formula for one node.
#pragma once

#include <memory>
#include <vector>

#include "rules/rule.h"

namespace torch::jit {
struct Graph;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// The formula's graph with its constant arguments in place, questions whether an argument is None
// answered where its type says so, and the `if`s on both decided. Deciding them later would replace
// values that have been noted by then. A formula that is one operator is one node. `arguments` are
// values of another graph, in the order of the formula's parameters.
std::shared_ptr<torch::jit::Graph> specialise_formula(
    const CompiledFormula& formula, const std::vector<torch::jit::Value*>& arguments);

}  // namespace aten_recompute
