// Gradients of one operator that can be differentiated again.
#pragma once

#include "passes/autodiff/gradient_sums.h"
#include "rules/rule.h"

namespace aten_recompute {

// Returns whether the rule can be used while the node stays as it is (apply_rule_beside()): a
// second run of its forward would not update statistics twice.
bool may_stay_beside(const Rule& rule, const torch::jit::Node* node);

// Returns whether all operators of the rule's formulas have a gradient themselves: by a rule, or
// because autograd differentiates what they run.
bool may_differentiate_again(const Rule& rule, torch::jit::Node* node);

// The same for the parts of a composed operator.
bool may_differentiate_parts_again(const Rule& rule, torch::jit::Node* node);

// Marks in `sums` those outputs of the node that are differentiable.
void require_differentiable_outputs(torch::jit::Node* node, GradientSums& sums);

// Returns whether insert_operator_gradient() can be used for the node: it takes and makes no lists
// of tensors, and may run twice.
bool has_operator_gradient(const torch::jit::Node* node);

// Inserts an aten_recompute::operator_gradient, which runs the node's operator again under
// autograd, and adds the gradients that it returns to `sums`. It reads detached operands where the
// gradients of a linear operator do not depend on them. Does nothing where no output of the node
// has a gradient. Throws NotDifferentiable where has_operator_gradient() does not hold.
//
//   y = op(x, n)      ==>      dx = operator_gradient[op, requires_grad=[1, 0]](x, n, dy)
void insert_operator_gradient(torch::jit::Node* node, GradientSums& sums);

}  // namespace aten_recompute
