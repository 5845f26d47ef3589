#include "passes/strategy/operator_types.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>

#include "ir/node_traits.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
namespace prim = c10::prim;

// What a tape runs: one operator.
const Node* inner_operator(const Node* node) {
  if (node->kind() != symbols::kTapeForward)
    return node;
  return *node->g(c10::attr::Subgraph)->nodes().begin();
}

// An operator is pointwise if an overload of it is.
bool is_pointwise(const Node* node) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr)
    return false;
  auto& dispatcher = c10::Dispatcher::singleton();
  const auto op = dispatcher.findSchema(schema->operator_name());
  if (op.has_value() && op->hasTag(at::Tag::pointwise))
    return true;
  const auto name = c10::OperatorName(schema->name(), "Tensor");
  const auto tensor_overload = dispatcher.findSchema(name);
  return tensor_overload.has_value() && tensor_overload->hasTag(at::Tag::pointwise);
}

// Moves values about without computing anything: no operator that a user would list.
bool is_plumbing(const Node* node) {
  switch (node->kind()) {
    case prim::ListConstruct:
    case prim::ListUnpack:
    case prim::TupleConstruct:
    case prim::TupleUnpack:
    case prim::TupleIndex:
    case prim::unchecked_cast:
    case prim::unchecked_unwrap_optional:
    case c10::aten::_unwrap_optional:
    case c10::aten::__getitem__:
      return true;
    default:
      return node->kind() == symbols::kOptionalList || is_marker(node);
  }
}

OperatorNames names_of(const std::vector<std::string>& names) {
  return {names.begin(), names.end()};
}

}  // namespace

const OperatorNames& default_recomputable_operators() {
  static const OperatorNames names = {
      // reductions, which ban_if_reduction looks at again
      "_grad_sum_to_size", "amax", "any", "argmax", "max", "mean", "min", "std", "sum",
      "sum_to_size", "var", "var_mean",
      // views; those that copy where they must; those that always do
      "alias", "as_strided", "broadcast_tensors", "broadcast_to", "chunk", "contiguous", "detach",
      "expand", "expand_as", "flatten", "movedim", "narrow", "permute", "reshape", "reshape_as",
      "select", "slice", "split", "split_with_sizes", "squeeze", "swapaxes", "t", "transpose",
      "unbind", "unflatten", "unsqueeze", "view", "view_as", "_unsafe_view", "clone",
      "lift_fresh_copy",
      // casts
      "_to_copy", "bool", "double", "float", "half", "int", "long", "to", "type_as",
      // from nothing, or from a size alone
      "arange", "empty", "empty_like", "full", "full_like", "new_full", "new_ones", "new_zeros",
      "ones", "ones_like", "scalar_tensor", "zeros", "zeros_like",
      // by index
      "gather", "index", "tril", "triu",
      // logic that is not tagged
      "__and__", "__or__", "__xor__",
      // other names of pointwise operators
      "absolute", "divide", "greater", "greater_equal", "less", "less_equal", "multiply",
      "negative", "not_equal", "subtract",
      // this library's own, in backwards and in what rules make of a forward
      "aten_recompute::accumulate", "aten_recompute::apply_dropout_mask",
      "aten_recompute::pack_bits", "aten_recompute::positive_bits", "aten_recompute::reduce_grad",
      "aten_recompute::sgn_grad", "aten_recompute::threshold_backward_bits",
      "aten_recompute::unpack_bits"};
  return names;
}

const OperatorNames& default_compute_intensive_operators() {
  static const OperatorNames names = {
      // matrix products
      "_scaled_mm", "addbmm", "addmm", "addmv", "addr", "baddbmm", "bilinear", "bmm",
      "chain_matmul", "dot", "einsum", "linear", "matmul", "mm", "mv", "tensordot",
      "aten_recompute::linear", "aten_recompute::matmul",
      // convolutions
      "_convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d",
      "conv_transpose3d", "convolution", "convolution_backward", "convolution_overrideable",
      // attention
      "_efficient_attention_forward", "_flash_attention_forward",
      "_scaled_dot_product_efficient_attention", "_scaled_dot_product_flash_attention",
      "_scaled_dot_product_flash_attention_for_cpu", "scaled_dot_product_attention",
      "aten_recompute::attention",
      // interpolation
      "upsample_bilinear2d"};
  return names;
}

std::string listed_name(const Node* node) {
  const auto kind = inner_operator(node)->kind();
  return kind.is_aten() ? kind.toUnqualString() : kind.toQualString();
}

OperatorTypes::OperatorTypes(const std::optional<std::vector<std::string>>& recomputable,
                             const std::optional<std::vector<std::string>>& compute_intensive,
                             bool recompute_random)
    : compute_intensive_(compute_intensive ? names_of(*compute_intensive)
                                           : default_compute_intensive_operators()),
      recompute_random_(recompute_random) {
  if (recomputable)
    recomputable_ = names_of(*recomputable);
}

bool OperatorTypes::random(const Node* node) const {
  return is_random(inner_operator(node));
}

bool OperatorTypes::recomputable(const Node* node) const {
  if (is_plumbing(node))
    return true;
  if (random(node))
    return recompute_random_;
  if (recomputable_)
    return recomputable_->count(listed_name(node)) != 0;
  return default_recomputable_operators().count(listed_name(node)) != 0 ||
         is_pointwise(inner_operator(node));
}

bool OperatorTypes::compute_intensive(const Node* node) const {
  return compute_intensive_.count(listed_name(node)) != 0;
}

bool OperatorTypes::fusible(const Node* node) const {
  return random(node) || recomputable(node);
}

bool OperatorTypes::concatenates(const Node* node) const {
  const auto name = listed_name(node);
  return name == "cat" || name == "concat" || name == "concatenate";
}

}  // namespace aten_recompute
