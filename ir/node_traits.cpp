#include "ir/node_traits.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <unordered_set>

#include "ir/registered_facts.h"
#include "ir/symbols.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;

// Views whose schema is annotated like an operator that sometimes copies, too.
const std::unordered_set<std::string> kMayCopy = {"aten::reshape",
                                                  "aten::reshape_as",
                                                  "aten::contiguous",
                                                  "aten::to",
                                                  "aten::flatten",
                                                  "aten::type_as",
                                                  "aten::float",
                                                  "aten::double",
                                                  "aten::half",
                                                  "aten::long",
                                                  "aten::int",
                                                  "aten::bool",
                                                  "aten::cpu",
                                                  "aten::cuda",
                                                  "aten::ravel",
                                                  "aten::_reshape_alias",
                                                  "aten::atleast_1d",
                                                  "aten::atleast_2d",
                                                  "aten::atleast_3d",
                                                  "aten::cartesian_prod",
                                                  "aten::resolve_conj",
                                                  "aten::resolve_neg",
                                                  "aten::einsum",
                                                  "aten::real",
                                                  "aten::_to_copy",
                                                  "aten::values",
                                                  "aten::indices",
                                                  "aten::broadcast_tensors",
                                                  "aten::meshgrid",
                                                  "aten_recompute::accumulate",
                                                  "aten_recompute::gradient_of_rule",
                                                  "aten_recompute::reduce_grad",
                                                  "aten_recompute::cat_backward",
                                                  "aten_recompute::stack_backward",
                                                  "aten_recompute::broadcast_tensors_backward",
                                                  "aten_recompute::optional_list",
                                                  "aten_recompute::accumulate_list",
                                                  "aten_recompute::list_gradient",
                                                  "aten_recompute::linear_grad_bias",
                                                  "aten_recompute::prod_backward",
                                                  "aten_recompute::prod_dim_backward",
                                                  "aten_recompute::pad_backward",
                                                  "aten_recompute::cumsum_backward",
                                                  "aten_recompute::repeat_backward"};

// derivatives.yaml: output_differentiability [False], and operators that return no floating tensor.
const std::unordered_set<std::string> kNonDifferentiable = {"aten::eq",
                                                            "aten::ne",
                                                            "aten::lt",
                                                            "aten::gt",
                                                            "aten::le",
                                                            "aten::ge",
                                                            "aten::equal",
                                                            "aten::allclose",
                                                            "aten::isclose",
                                                            "aten::isnan",
                                                            "aten::isinf",
                                                            "aten::isfinite",
                                                            "aten::isposinf",
                                                            "aten::isneginf",
                                                            "aten::isreal",
                                                            "aten::is_nonzero",
                                                            "aten::argmax",
                                                            "aten::argmin",
                                                            "aten::argsort",
                                                            "aten::nonzero",
                                                            "aten::bincount",
                                                            "aten::histc",
                                                            "aten::searchsorted",
                                                            "aten::bucketize",
                                                            "aten::all",
                                                            "aten::any",
                                                            "aten::logical_and",
                                                            "aten::logical_or",
                                                            "aten::logical_not",
                                                            "aten::logical_xor",
                                                            "aten::bitwise_and",
                                                            "aten::bitwise_or",
                                                            "aten::bitwise_not",
                                                            "aten::bitwise_xor",
                                                            "aten::__and__",
                                                            "aten::__or__",
                                                            "aten::__xor__",
                                                            "aten::detach",
                                                            "aten::item",
                                                            "aten::size",
                                                            "aten::numel",
                                                            "aten::dim",
                                                            "aten::zeros_like",
                                                            "aten::ones_like",
                                                            "aten::empty_like",
                                                            "aten::full_like",
                                                            "aten::rand_like",
                                                            "aten::randn_like",
                                                            "aten::randint_like",
                                                            "aten::new_zeros",
                                                            "aten::new_ones",
                                                            "aten::new_empty",
                                                            "aten::new_full",
                                                            "aten::one_hot",
                                                            "aten::count_nonzero",
                                                            "aten::signbit",
                                                            "aten::multinomial",
                                                            "aten::Int",
                                                            "aten::Float",
                                                            "aten::Bool",
                                                            "aten::is_floating_point",
                                                            "aten::stride",
                                                            "aten::storage_offset",
                                                            "aten::len",
                                                            "aten::is_contiguous",
                                                            "aten::_local_scalar_dense",
                                                            "aten::tolist",
                                                            "aten::tril_indices",
                                                            "aten::triu_indices",
                                                            "aten::long",
                                                            "aten::int",
                                                            "aten::bool",
                                                            "aten_recompute::dropout_mask",
                                                            "aten_recompute::attention_dropout"};

// Random operators whose schema is older than the tag.
const std::unordered_set<std::string> kRandom = {"aten::rrelu",
                                                 "aten::rrelu_with_noise",
                                                 "aten::multinomial",
                                                 "aten::lstm",
                                                 "aten::gru",
                                                 "aten_recompute::dropout_mask",
                                                 "aten_recompute::attention_dropout"};

const std::unordered_set<std::string> kUpdatesStatistics = {"aten::batch_norm",
                                                            "aten::_batch_norm_impl_index",
                                                            "aten::native_batch_norm",
                                                            "aten::cudnn_batch_norm",
                                                            "aten::miopen_batch_norm",
                                                            "aten::instance_norm",
                                                            "aten::_native_batch_norm_legit"};

// derivatives.yaml: operators of which only the first result has a gradient, because the formulas
// read no other or because output_differentiability says so.
const std::unordered_set<std::string> kOnlyFirstIsDifferentiable = {
    "aten::_batch_norm_no_update",
    "aten::_batch_norm_with_update",
    "aten::_ctc_loss",
    "aten::_embedding_bag",
    "aten::_fused_moving_avg_obs_fq_helper",
    "aten::_linalg_det",
    "aten::_linalg_solve_ex",
    "aten::_lu_with_info",
    "aten::_native_batch_norm_legit",
    "aten::_native_batch_norm_legit_no_training",
    "aten::_pack_padded_sequence",
    "aten::_scaled_dot_product_flash_attention_for_cpu",
    "aten::_unique",
    "aten::_unique2",
    "aten::_weight_norm_interface",
    "aten::adaptive_max_pool1d",
    "aten::adaptive_max_pool2d",
    "aten::adaptive_max_pool3d",
    "aten::cummax",
    "aten::cummin",
    "aten::embedding_bag",
    "aten::fake_quantize_per_channel_affine_cachemask",
    "aten::fake_quantize_per_tensor_affine_cachemask",
    "aten::fractional_max_pool2d",
    "aten::fractional_max_pool3d",
    "aten::frexp",
    "aten::geqrf",
    "aten::kthvalue",
    "aten::linalg_cholesky_ex",
    "aten::linalg_inv_ex",
    "aten::linalg_ldl_factor",
    "aten::linalg_ldl_factor_ex",
    "aten::linalg_lu_factor",
    "aten::linalg_lu_factor_ex",
    "aten::linalg_solve_ex",
    "aten::log_sigmoid_forward",
    "aten::max_pool1d_with_indices",
    "aten::max_pool2d_with_indices",
    "aten::max_pool3d_with_indices",
    "aten::median",
    "aten::mode",
    "aten::multilabel_margin_loss_forward",
    "aten::nanmedian",
    "aten::native_batch_norm",
    "aten::native_dropout",
    "aten::nll_loss2d_forward",
    "aten::nll_loss_forward",
    "aten::sort",
    "aten::topk",
    "aten::unique_consecutive",
    "aten::unique_dim",
    "aten::unique_dim_consecutive"};

bool has_tag(const Node* node, at::Tag tag) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr)
    return false;
  auto op = c10::Dispatcher::singleton().findSchema(schema->operator_name());
  return op.has_value() && op->hasTag(tag);
}

}  // namespace

std::string qualified_operator_name(const Node* node) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr)
    return node->kind().toQualString();
  if (schema->overload_name().empty())
    return schema->name();
  return schema->name() + "." + schema->overload_name();
}

std::string location_of(const Node* node) {
  const auto position = node->sourceRange().file_line_col();
  if (!position)
    return "";
  return std::get<0>(*position) + ":" + std::to_string(std::get<1>(*position));
}

bool mutates_an_argument(const Node* node) {
  const auto* schema = node->maybeSchema();
  return schema != nullptr && schema->is_mutable();
}

bool may_alias_an_argument(const Node* node) {
  const auto* schema = node->maybeSchema();
  if (schema == nullptr || schema->is_mutable())
    return false;
  for (const auto& result : schema->returns()) {
    if (result.alias_info() != nullptr)
      return true;
  }
  return kMayCopy.count(schema->name()) != 0;
}

bool is_pure_view(const Node* node) {
  return may_alias_an_argument(node) && kMayCopy.count(node->schema().name()) == 0 &&
         node->kind().is_aten();
}

bool makes_new_tensor(const torch::jit::Value* value) {
  const auto* node = value->node();
  return node->kind().is_aten() && node->maybeSchema() != nullptr && node->blocks().empty() &&
         !may_alias_an_argument(node) && !mutates_an_argument(node);
}

bool is_random(const Node* node) {
  if (const auto* registered = registered_facts(node);
      registered != nullptr && registered->random.has_value())
    return *registered->random;
  return has_tag(node, at::Tag::nondeterministic_seeded) || node->isNondeterministic() ||
         kRandom.count(node->kind().toQualString()) != 0;
}

bool may_be_random(const Node* node) {
  if (is_random(node))
    return true;
  if (node->maybeSchema() == nullptr || node->kind().is_aten() || node->kind().is_prim() ||
      node->kind().ns() == symbols::kMarkLayer.ns())
    return false;
  const auto* registered = registered_facts(node);
  return registered == nullptr || !registered->random.has_value();
}

bool may_run_again(const Node* node) {
  const auto* registered = registered_facts(node);
  return registered == nullptr || registered->recomputable;
}

bool updates_hidden_state(const Node* node) {
  if (const auto* registered = registered_facts(node);
      registered != nullptr && (registered->has_replay || !registered->recomputable))
    return true;
  return kUpdatesStatistics.count(node->kind().toQualString()) != 0;
}

bool updates_statistics_only(const Node* node) {
  return kUpdatesStatistics.count(node->kind().toQualString()) != 0 &&
         registered_facts(node) == nullptr;
}

bool reads_metadata_only(const Node* node, size_t operand) {
  static const std::unordered_set<std::string> kOperators{
      "aten::size",       "aten::dim",        "aten::numel",        "aten::is_floating_point",
      "aten::zeros_like", "aten::ones_like",  "aten::full_like",    "aten::empty_like",
      "aten::rand_like",  "aten::randn_like", "aten::randint_like", "aten::new_zeros",
      "aten::new_ones",   "aten::new_full",   "aten::new_empty"};
  if (!node->hasAttribute(c10::attr::Subgraph))
    return operand == 0 && kOperators.count(node->kind().toQualString()) != 0;
  // The last operands are the subgraph's inputs; those of a random state stand before them.
  const auto inputs = node->g(c10::attr::Subgraph)->inputs();
  const auto others = node->inputs().size() - std::min(node->inputs().size(), inputs.size());
  if (operand < others)
    return false;
  const auto& uses = inputs[operand - others]->uses();
  return std::all_of(uses.begin(), uses.end(), [](const torch::jit::Use& use) {
    return reads_metadata_only(use.user, use.offset);
  });
}

bool is_non_differentiable(const Node* node) {
  if (kNonDifferentiable.count(node->kind().toQualString()) != 0) {
    const auto* registered = registered_facts(node);
    return registered == nullptr || !registered->has_gradients;
  }
  // A cast to an integer type that is known now.
  if (node->kind() == c10::aten::to || node->kind() == c10::aten::type_as) {
    for (size_t i = 1; i < node->inputs().size(); ++i) {
      const auto* schema = node->maybeSchema();
      if (schema == nullptr || schema->arguments()[i].name() != "dtype")
        continue;
      auto dtype = torch::jit::toIValue(node->input(i));
      if (dtype && dtype->isInt()) {
        const auto type = dtype->toScalarType();
        return !at::isFloatingType(type) && !at::isComplexType(type);
      }
    }
  }
  return false;
}

bool output_is_differentiable(const Node* node, size_t output) {
  const std::string name = node->kind().toQualString();
  if (name == "aten::linalg_lu" || name == "aten::lu_unpack")
    return output > 0;  // the first is a permutation
  if (name == "aten::linalg_lstsq" || name == "aten::_linalg_slogdet")
    return output < 2;
  return output == 0 || kOnlyFirstIsDifferentiable.count(name) == 0;
}

bool asks_autograd(const Node* node) {
  static const std::unordered_set<std::string> kinds = {
      "prim::requires_grad", "aten::requires_grad",   "aten::is_leaf", "aten::retains_grad",
      "aten::output_nr",     "aten::is_grad_enabled", "aten::_version"};
  return kinds.count(node->kind().toQualString()) != 0;
}

bool runs_autograd(const Node* node) {
  static const std::unordered_set<std::string> kinds = {"aten::grad", "aten::backward",
                                                        "aten::_backward", "prim::grad"};
  return kinds.count(node->kind().toQualString()) != 0;
}

bool is_marker(const Node* node) {
  const auto kind = node->kind();
  return kind == symbols::kMarkLayer || kind == symbols::kMustSave ||
         kind == symbols::kMustRecompute || kind == symbols::kPreferSave ||
         kind == symbols::kPreferRecompute;
}

bool is_in_a_loop(const Node* node) {
  for (; node != nullptr; node = node->owningBlock()->owningNode()) {
    if (node->kind() == c10::prim::Loop)
      return true;
  }
  return false;
}

void for_each_node(torch::jit::Block* block, const std::function<void(Node*)>& function) {
  for (auto* node : block->nodes()) {
    function(node);
    for (auto* inner : node->blocks())
      for_each_node(inner, function);
  }
}

bool is_cast(const Node* node) {
  return node->kind() == c10::prim::unchecked_cast ||
         node->kind() == c10::prim::unchecked_unwrap_optional ||
         node->kind() == c10::aten::_unwrap_optional;
}

bool contains_tensor(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType)
    return true;
  if (type.kind() == c10::TypeKind::AnyType)
    return true;
  for (const auto& inner : type.containedTypes()) {
    if (contains_tensor(*inner))
      return true;
  }
  return false;
}

bool is_tensor_type(const c10::Type& type) {
  if (type.kind() == c10::TypeKind::TensorType)
    return true;
  if (type.kind() != c10::TypeKind::OptionalType)
    return false;
  const auto inner = type.containedTypes();
  return inner.size() == 1 && inner[0]->kind() == c10::TypeKind::TensorType;
}

}  // namespace aten_recompute
