// Properties of nodes that matter for differentiation and recomputation. They follow from the
// operator's schema and tags, from registered rules, and from the table of operator facts
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

// Returns whether the node writes to one of its arguments (in-place and out= operators).
bool mutates_an_argument(const torch::jit::Node* node);
// Returns whether the schema of the node says that it writes to argument number `argument`. False
// for nodes without a schema, and for what comes after the arguments that the schema names.
bool writes_to(const torch::jit::Node* node, size_t argument);

// Returns whether the result is always a view of the first argument, which costs nothing to
// recompute.
bool is_pure_view(const torch::jit::Node* node);

// Returns whether the node is x[:], a slice of a tensor that is all of a dimension.
bool slices_whole_dimension(const torch::jit::Node* node);

// Returns whether an output may share storage with an argument. This is so for pure views, and for
// operators that copy only if they have to (reshape, contiguous, to).
bool may_alias_an_argument(const torch::jit::Node* node);

// Returns whether an operator of the graph computes the value, and its result is always a new
// tensor.
bool makes_new_tensor(const torch::jit::Value* value);

// Returns whether ATen tags the operator, or its Tensor overload, as pointwise.
bool is_pointwise(const torch::jit::Node* node);

// What an argument of an operator says of whether its result is a leaf that requires grad.
enum class LeafArgument {
  kNone,  // the operator has no such argument
  kFalse,
  kTrue,
  kUnknown,  // before a call
};
LeafArgument leaf_argument(const torch::jit::Node* node);

// Returns whether the value is a leaf that a path has made before its regions
// (passes/frontend/path/returned_leaves.h): it depends on nothing, whatever it is made from.
bool is_made_leaf(const torch::jit::Value* value);

// Returns whether the node draws random numbers, so that a second run gives another result.
bool is_random(const torch::jit::Node* node);

// Returns whether the node is random, or may be because it is an operator of another library and no
// registered rule says whether it is. Such operators seldom have the tag that says so.
bool may_be_random(const torch::jit::Node* node);

// Returns false if a registered rule says that the operator must run only once.
bool may_run_again(const torch::jit::Node* node);

// Returns whether the node updates a buffer that its schema does not declare as written (running
// statistics), or has other effects that a second run must not have.
bool updates_hidden_state(const torch::jit::Node* node);
// Returns whether the only such effect is the update of a normalization's running statistics.
bool updates_statistics_only(const torch::jit::Node* node);

// Returns whether running the node changes something that its results do not show: it draws random
// numbers, which advances the generator, or updates hidden state. Such a node runs even if nothing
// reads its results. What its schema declares as written, or LibTorch takes for a side effect, is
// not counted, because every pass knows of it.
bool has_effect(const torch::jit::Node* node);

// Returns whether no gradient passes through the node, whatever its inputs are: comparisons,
// argmax, detach, *_like, ...
bool is_non_differentiable(const torch::jit::Node* node);

// Returns whether the node reads only sizes, strides, type and device of operand number `operand`,
// and its result does not share memory with it: *_like, new_*, size, ..., and nodes whose subgraph
// does only this.
bool reads_metadata_only(const torch::jit::Node* node, size_t operand);

// Returns whether output number `output` has a gradient. The indices of a maximum have none, nor do
// the statistics that a batch norm returns.
bool output_is_differentiable(const torch::jit::Node* node, size_t output);

// Returns whether the node queries the autograd state of a tensor or the current mode:
// requires_grad, is_leaf, grad. Autograd is off inside a region, so the answer would be different
// there.
bool asks_autograd(const torch::jit::Node* node);

// Returns whether the node runs autograd inside the method (autograd.grad(), backward()), or reads
// the resulting `.grad`.
bool runs_autograd(const torch::jit::Node* node);

// Returns whether the node begins or ends a block of torch.autocast.
bool bounds_autocast_block(const torch::jit::Node* node);

// Returns whether the node queries autocast: whether it is on, or its type.
bool asks_autocast(const torch::jit::Node* node);

// Returns whether a node of the block, at any depth, begins or ends a block of torch.autocast or
// queries autocast.
bool depends_on_autocast(torch::jit::Block* block);

// Returns whether the node is mark_layer, must_save or the like: an identity that tells a plan
// something.
bool is_marker(const torch::jit::Node* node);

// Returns whether the node is inside a loop, at any depth.
bool is_in_a_loop(const torch::jit::Node* node);

// Calls `function` for every node of the block and of nested blocks, in order; a node comes before
// the nodes in its blocks.
void for_each_node(torch::jit::Block* block,
                   const std::function<void(torch::jit::Node*)>& function);

// Returns the values that the node reads from outside of itself, those that only its nested blocks
// read included: each once, in the order of first use.
std::vector<torch::jit::Value*> free_values(torch::jit::Node* node);

// Returns whether the node only gives its operand another static type. TorchScript needs such
// nodes; eager mode has no such operator.
bool is_cast(const torch::jit::Node* node);

// Returns whether values of this type are tensors or can contain them: Tensor, Any, and lists,
// tuples, dicts and optionals of these.
bool contains_tensor(const c10::Type& type);
// Returns whether an output of the node is, or may contain, a tensor.
bool makes_tensors(const torch::jit::Node* node);

// Returns whether the type is Tensor or Optional[Tensor].
bool is_tensor_type(const c10::Type& type);

// Returns whether a value of this type may be None.
bool can_be_none(const c10::Type& type);

}  // namespace aten_recompute
