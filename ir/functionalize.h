// Turns in-place operators on the method's own values into functional operators.
#pragma once

#include <ATen/core/interned_strings.h>

#include <memory>

namespace torch::jit {
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// Attribute of functional forms that autocast would cast operands of, unlike the in-place operators
// that they stand for.
inline const c10::Symbol kUncastInPlace = c10::Symbol::attr("uncast_in_place");

// Attribute of functional forms with a second tensor, which may have another type, and of the cast
// to the operand's type behind them. The gradient of what an in-place operator writes has the type
// of the operand, and eager PyTorch computes the gradients of both operands from it as it is.
inline const c10::Symbol kKeepsType = c10::Symbol::attr("keeps_type");

// Replaces  y = add_(x, z)  by  y = to(add(x, z), dtype(x))  and later reads of x by y. This
// requires that an operator of the same block made x, and that nothing else can see its memory
// before the last write; views and lists made of x after that are made of y instead. The cast is
// inserted for operators with a second tensor: it undoes type promotion, and returns its input if
// there was none. LibTorch's RemoveTensorMutation does the same only if it can move the two
// operators together, which the checks of a batch norm between them prevent.
//
// Writes to inputs, attributes, views and values with another alias are left alone.
void functionalize(const std::shared_ptr<torch::jit::Graph>& graph);

// Returns whether the node has the form y = op_(x, ...) and writes to x alone.
bool is_in_place(const torch::jit::Node* node);

// Replaces an in-place operator by its functional form, which does not write to its operand, and
// returns the result. Returns nullptr, and leaves the node, if there is no such operator. Readers
// of the operand are left alone.
torch::jit::Value* make_functional(torch::jit::Node* node);

// Makes operators with kUncastInPlace or kKeepsType write to a copy of their operand again, for
// nodes that run outside of regions, where autocast would cast, and autograd differentiate the
// cast.
//
//   z = addmm(x, y, w)    ==>    z = addmm_(clone(x), y, w)
void restore_in_place(torch::jit::Graph& graph);

// Returns a copy of the graph on which this was done, and likewise for zero() and copy(): autograd
// has formulas for zero_() and copy_(), but none for their functional forms.
std::shared_ptr<torch::jit::Graph> for_autograd(torch::jit::Graph& graph);

}  // namespace aten_recompute
