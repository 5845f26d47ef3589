// Inserts the formula of a gradient rule into a graph.
#pragma once

#include <vector>

#include "rules/rule.h"

namespace torch::jit {
struct Graph;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// Inserts the formula at the graph's insert point and returns its results; a tuple is returned as
// its elements. `arguments` stand in the order of the formula's parameters.
//
// Constant arguments are put into the formula, `x is None` is answered where the argument's type
// tells, and each `if` that depends on these is decided. If passes did this later, values that the
// caller keeps would be replaced. A formula with `is_one_operator` becomes one node.
std::vector<torch::jit::Value*> insert_formula(torch::jit::Graph& graph,
                                               const CompiledFormula& formula,
                                               const std::vector<torch::jit::Value*>& arguments);

}  // namespace aten_recompute
