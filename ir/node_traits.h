// Questions about nodes, as far as differentiation and recomputation care. The answers come from
// the operator's schema and tags, from registered rules, and from the table of operator facts
// (ir/operator_facts.h).
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace c10 {
struct Type;
}
namespace torch::jit {
struct Block;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// "aten::mul.Tensor", "aten::relu", or the kind's name where the node has no schema.
std::string qualified_operator_name(const torch::jit::Node* node);

// "model.py:12", the line that the node was scripted from; empty where that is not known.
std::string location_of(const torch::jit::Node* node);

// Writes to one of its arguments (in-place and out= operators).
bool mutates_an_argument(const torch::jit::Node* node);

// Always returns a view of its first argument's storage: costs nothing to compute again.
bool is_pure_view(const torch::jit::Node* node);

// An output may share storage with an argument: pure views, and operators that copy only where they
// must (reshape, contiguous, to).
bool may_alias_an_argument(const torch::jit::Node* node);

// The value is computed in the graph, by an operator whose result is always a new tensor.
bool makes_new_tensor(const torch::jit::Value* value);

// Draws random numbers, so that computing it again gives another result.
bool is_random(const torch::jit::Node* node);

// The same, or an operator of another library of which neither a tag nor a rule says what it does:
// they seldom say that they are random.
bool may_be_random(const torch::jit::Node* node);

// Not where a user's rule says that it must run once only.
bool may_run_again(const torch::jit::Node* node);

// Updates a buffer that its schema does not say it writes to (running statistics), or has
// other effects that a second run must not have.
bool updates_hidden_state(const torch::jit::Node* node);
// Of that, nothing but the running statistics of a normalisation.
bool updates_statistics_only(const torch::jit::Node* node);

// No gradient passes through it whatever its inputs are: comparisons, argmax, detach, *_like, ...
bool is_non_differentiable(const torch::jit::Node* node);

// Reads nothing but sizes, strides, type and device of its operand with this number, and its result
// does not share memory with it: *_like, new_*, size, ..., and what runs them again.
bool reads_metadata_only(const torch::jit::Node* node, size_t operand);

// A gradient comes to the node's i-th output: not to the indices of a maximum, nor to the
// statistics that a batch norm returns.
bool output_is_differentiable(const torch::jit::Node* node, size_t output);

// Asks autograd about a tensor or about the mode it is in: requires_grad, is_leaf, grad. Inside of
// a region autograd is off, and the answer would be another.
bool asks_autograd(const torch::jit::Node* node);

// Runs autograd from inside of the method: autograd.grad(), backward(), or a read of what these
// leave in `.grad`.
bool runs_autograd(const torch::jit::Node* node);

// mark_layer, must_save and their like: the identity, there to tell a plan something.
bool is_marker(const torch::jit::Node* node);

// Inside of a loop, however deep.
bool is_in_a_loop(const torch::jit::Node* node);

// Every node of the block and of the blocks inside it, in their order; a node before those in its
// blocks.
void for_each_node(torch::jit::Block* block,
                   const std::function<void(torch::jit::Node*)>& function);

// Returns the values that the node reads from outside of itself, those that only its nested blocks
// read included: each once, in the order of first use.
std::vector<torch::jit::Value*> free_values(torch::jit::Node* node);

// Another type for the same value, as TorchScript wants it; in eager there is no such operator.
bool is_cast(const torch::jit::Node* node);

// Tensor, or a list, tuple, dict or optional that can hold tensors.
bool contains_tensor(const c10::Type& type);

// Tensor or Optional[Tensor].
bool is_tensor_type(const c10::Type& type);

}  // namespace aten_recompute
