#include "ir/operator_facts.h"

#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "ir/node_names.h"

namespace aten_recompute {
namespace {

using enum Fact;
using enum FlopFormula;
using enum ReuseCondition;

// "aten::add" is the row of every overload, "aten::add.Tensor" that of one overload, "aten::where."
// that of the overload without a name. An overwriting form in a row of every overload belongs to
// the overload without a name only.
struct Row {
  Row(const char* name, std::vector<Fact> facts, FlopFormula flops = kPerElement)
      : name(name), facts(std::move(facts)), flops(flops) {}
  Row(const char* name, std::vector<Fact> facts, OverwritingForm overwriting)
      : name(name), facts(std::move(facts)), overwriting(std::move(overwriting)) {}

  std::string kind() const { return name.substr(0, name.find('.')); }
  bool is_overload() const { return name.find('.') != std::string::npos; }
  std::string overload() const { return is_overload() ? name.substr(name.find('.') + 1) : ""; }

  std::string name;
  std::vector<Fact> facts;
  FlopFormula flops = kPerElement;
  std::optional<OverwritingForm> overwriting{};
};

// Returns the form of an operator with a variant that writes to its first argument. This variant is
// `writer`, by default the operator's name with "_" appended.
OverwritingForm in_place(ReuseCondition condition, const char* writer = "") {
  return {writer, "", false, {0}, condition};
}

// Returns the form of an operator whose `overload` takes the tensor to write to as its last
// argument.
OverwritingForm to_output(const char* overload, std::vector<size_t> operands,
                          ReuseCondition condition) {
  return {"", overload, true, std::move(operands), condition};
}

// Returns the form of an operator that looks for an operand to overwrite itself.
OverwritingForm by_itself(std::vector<size_t> operands) {
  return {"", "", false, std::move(operands), kSumsAgree};
}

// clang-format off
const std::vector<Row>& rows() {
  // oneDNN documents that its kernel of gelu_backward may overwrite the gradient; it does not say
  // so of the other operand.
  static const std::vector<Row> table{
    {"aten::Bool", {kNotDifferentiable, kReadsData, kComputesWithSizes}},
    {"aten::Complex", {kReadsData}},
    {"aten::Float", {kNotDifferentiable, kReadsData, kComputesWithSizes}},
    {"aten::FloatImplicit", {kReadsData}},
    {"aten::Int", {kNotDifferentiable, kReadsData, kComputesWithSizes}},
    {"aten::IntImplicit", {kReadsData}},
    {"aten::ScalarImplicit", {kReadsData}},
    {"aten::absolute", {kCheap}},
    {"aten::adaptive_avg_pool1d", {kKeepsOrder}},
    {"aten::adaptive_avg_pool2d", {kKeepsChannelsLast, kSpreadsGradient}},
    {"aten::adaptive_avg_pool3d", {kKeepsChannelsLast, kSpreadsGradient}},
    {"aten::adaptive_max_pool1d", {kOnlyFirstOutputDifferentiable, kKeepsOrder}},
    {"aten::adaptive_max_pool2d", {kOnlyFirstOutputDifferentiable, kKeepsOrder}},
    {"aten::adaptive_max_pool3d", {kOnlyFirstOutputDifferentiable, kKeepsOrder}},
    {"aten::add", {kBroadcastsRanks, kComputesWithSizes}},
    {"aten::add.Scalar", {}, in_place(kScalarsAgree)},
    {"aten::add.Tensor", {}, to_output("out", {0, 1}, kTensorsAgree)},
    {"aten::addbmm", {kComputeIntensive}},
    {"aten::addmm", {kComputeIntensive, kMakesOrder}, kProductPlusBias},
    {"aten::addmv", {kComputeIntensive}},
    {"aten::addr", {kComputeIntensive}},
    {"aten::alias", {kKeepsRank, kCheap, kKeepsOrder}},
    {"aten::all", {kNotDifferentiable}},
    {"aten::allclose", {kNotDifferentiable, kReadsData}},
    {"aten::alpha_dropout", {kDropout, kKeepsOrder}},
    {"aten::amax", {kCheap, kKeepsOrder}},
    {"aten::amin", {kKeepsOrder}},
    {"aten::__and__", {kNotDifferentiable, kCheap}},
    {"aten::any", {kNotDifferentiable, kCheap}},
    {"aten::arange", {kCheap, kMakesOrder}},
    {"aten::argmax", {kNotDifferentiable, kCheap, kKeepsOrder}},
    {"aten::argmin", {kNotDifferentiable, kKeepsOrder}},
    {"aten::argsort", {kNotDifferentiable}},
    {"aten::as_strided", {kCheap}},
    {"aten::as_tensor", {kMakesOrder}},
    {"aten::atleast_1d", {kMayCopy, kReturnsArgumentOfSameLayout}},
    {"aten::atleast_2d", {kMayCopy, kReturnsArgumentOfSameLayout}},
    {"aten::atleast_3d", {kMayCopy, kReturnsArgumentOfSameLayout}},
    {"aten::avg_pool1d", {kKeepsOrder}},
    {"aten::avg_pool2d", {kKeepsChannelsLast}},
    {"aten::avg_pool3d", {kKeepsChannelsLast}},
    {"aten::_backward", {kRunsAutograd}},
    {"aten::backward", {kRunsAutograd}},
    {"aten::baddbmm", {kComputeIntensive, kMakesOrder}, kProductPlusBias},
    {"aten::batch_norm", {kUpdatesStatistics, kKeepsRank, kKeepsChannelsLast}},
    {"aten::_batch_norm_impl_index", {kUpdatesStatistics}},
    {"aten::_batch_norm_no_update", {kOnlyFirstOutputDifferentiable, kReadsWhatMayChange}},
    {"aten::_batch_norm_with_update", {kOnlyFirstOutputDifferentiable}},
    {"aten::bernoulli", {kKeepsOrder}},
    {"aten::bernoulli_", {kDiffersInPlace}},  // it has a gradient, which is zero
    {"aten::bilinear", {kComputeIntensive}},
    {"aten::as_strided_", {kChangesTensorItself}},
    {"aten::bincount", {kNotDifferentiable}},
    {"aten::bitwise_and", {kNotDifferentiable}},
    {"aten::bitwise_not", {kNotDifferentiable}},
    {"aten::bitwise_or", {kNotDifferentiable}},
    {"aten::bitwise_xor", {kNotDifferentiable}},
    {"aten::bmm", {kComputeIntensive, kMakesOrder}, kProduct},
    {"aten::bool", {kMayCopy, kNotDifferentiable, kCheap}},
    {"aten::broadcast_tensors", {kMayCopy, kCheap}},
    {"aten::broadcast_to", {kCheap, kKeepsOrder}},
    {"aten::bucketize", {kNotDifferentiable}},
    {"aten::cartesian_prod", {kMayCopy}},
    {"aten::cat", {kConcatenates, kKeepsChannelsLast}},
    {"aten::ceil", {kComputesWithSizes}},
    {"aten::celu_", {kDiffersInPlace}},
    {"aten::chain_matmul", {kComputeIntensive}},
    {"aten::channel_shuffle", {kKeepsOrder}},
    {"aten::chunk", {kCheap, kKeepsOrder}},
    {"aten::clone", {kKeepsRank, kCheap, kKeepsOrder}},
    {"aten::col2im", {kMakesOrder}},
    {"aten::concat", {kConcatenates, kKeepsChannelsLast}},
    {"aten::concatenate", {kConcatenates, kKeepsChannelsLast}},
    {"aten::conj", {kReturnsArgumentOfSameType}},
    {"aten::constant_pad_nd", {kKeepsChannelsLast}},
    {"aten::contiguous", {kMayCopy, kReturnsArgumentOfSameLayout, kKeepsRank, kCheap}},
    {"aten::conv1d", {kComputeIntensive}, kConvolution},
    {"aten::conv2d", {kComputeIntensive}, kConvolution},
    {"aten::conv3d", {kComputeIntensive}, kConvolution},
    {"aten::conv_depthwise3d", {}, kConvolution},
    {"aten::conv_tbc", {}, kConvolution},
    {"aten::conv_transpose1d", {kComputeIntensive}, kTransposedConvolution},
    {"aten::conv_transpose2d", {kComputeIntensive}, kTransposedConvolution},
    {"aten::conv_transpose3d", {kComputeIntensive}, kTransposedConvolution},
    {"aten::_convolution", {kComputeIntensive}},
    {"aten::convolution", {kComputeIntensive}, kConvolution},
    {"aten::convolution_backward", {kComputeIntensive}, kConvolutionBackward},
    {"aten::convolution_backward_overrideable", {}, kConvolutionBackward},
    {"aten::convolution_overrideable", {kComputeIntensive}, kConvolution},
    {"aten::count_nonzero", {kNotDifferentiable}},
    {"aten::cpu", {kMayCopy, kReturnsArgumentOfSameType}},
    {"aten::_ctc_loss", {kOnlyFirstOutputDifferentiable}},
    {"aten::cuda", {kMayCopy, kReturnsArgumentOfSameType}},
    {"aten::cudnn_batch_norm", {kUpdatesStatistics}},
    {"aten::cummax", {kOnlyFirstOutputDifferentiable}},
    {"aten::cummin", {kOnlyFirstOutputDifferentiable}},
    {"aten::cumsum", {kKeepsOrder}},
    {"aten::detach", {kNotDifferentiable, kKeepsRank, kCheap, kKeepsOrder}},
    {"aten::detach_", {kChangesTensorItself}},
    {"aten::dim", {kNotDifferentiable, kReadsMetadataOnly, kKnownFromMetadata, kFollowsFromType}},
    {"aten::div", {kBroadcastsRanks, kComputesWithSizes}},
    {"aten::div.Scalar", {}, in_place(kScalarsAgree)},
    {"aten::div.Tensor", {}, to_output("out", {0, 1}, kTensorsAgree)},
    {"aten::divide", {kCheap}},
    {"aten::dot", {kComputeIntensive}},
    {"aten::double", {kMayCopy, kReturnsArgumentOfSameType, kCheap}},
    {"aten::dropout", {kKeepsRank, kDropout, kKeepsOrder}},
    {"aten::dropout_", {kDiffersInPlace}},
    {"aten::_efficient_attention_forward", {kComputeIntensive}},
    {"aten::einsum", {kMayCopyOnlyElement, kComputeIntensive}},
    {"aten::elu", {kKeepsRank}, in_place(kTensorsAgree)},
    {"aten::elu_", {kDiffersInPlace}},
    {"aten::elu_backward", {}, to_output("grad_input", {0, 5}, kTensorsAgree)},
    {"aten::embedding", {kMakesOrder}},
    {"aten::_embedding_bag", {kOnlyFirstOutputDifferentiable}},
    {"aten::embedding_bag", {kOnlyFirstOutputDifferentiable}},
    {"aten::empty", {kCheap, kMakesOrder}},
    {"aten::empty_like", {kNotDifferentiable, kReadsMetadataOnly, kKeepsRank, kCheap, kKeepsOrder}},
    {"aten::eq", {kNotDifferentiable, kComputesWithSizes}},
    {"aten::equal", {kNotDifferentiable, kReadsData}},
    {"aten::exp", {kKeepsRank}, in_place(kTensorsAgree)},
    {"aten::expand", {kCheap, kKeepsOrder}},
    {"aten::expand_as", {kCheap, kKeepsOrder, kReadsMetadataOfSecond}},
    {"aten::eye", {kMakesOrder}},
    {"aten::fake_quantize_per_channel_affine_cachemask", {kOnlyFirstOutputDifferentiable}},
    {"aten::fake_quantize_per_tensor_affine_cachemask", {kOnlyFirstOutputDifferentiable}},
    {"aten::feature_alpha_dropout", {kDropout, kKeepsOrder}},
    {"aten::feature_dropout", {kDropout, kKeepsOrder}},
    {"aten::_flash_attention_forward", {kComputeIntensive}},
    {"aten::flatten", {kMayCopy, kReturnsArgumentOfSameLayout, kCheap, kKeepsOrder}},
    {"aten::float", {kMayCopy, kReturnsArgumentOfSameType, kCheap}},
    {"aten::floor", {kComputesWithSizes}},
    {"aten::floor_divide", {kComputesWithSizes}},
    {"aten::fractional_max_pool2d", {kOnlyFirstOutputDifferentiable}},
    {"aten::fractional_max_pool3d", {kOnlyFirstOutputDifferentiable}},
    {"aten::frexp", {kOnlyFirstOutputDifferentiable}},
    {"aten::full", {kCheap, kMakesOrder}},
    {"aten::full_like", {kNotDifferentiable, kReadsMetadataOnly, kKeepsRank, kCheap, kKeepsOrder}},
    {"aten::_fused_moving_avg_obs_fq_helper", {kOnlyFirstOutputDifferentiable}},
    {"aten::gather", {kCheap}},
    {"aten::ge", {kNotDifferentiable, kComputesWithSizes}},
    {"aten::gelu", {kKeepsRank}, in_place(kTensorsAgree)},
    {"aten::gelu_backward", {}, to_output("grad_input", {0}, kTensorsAgree)},
    {"aten::geqrf", {kOnlyFirstOutputDifferentiable}},
    {"aten::__getitem__", {kMovesValues, kKnownFromMetadata}},
    {"aten::glu", {kKeepsOrder}},
    {"aten::grad", {kRunsAutograd}},
    {"aten::_grad_sum_to_size", {kCheap}},
    {"aten::greater", {kCheap}},
    {"aten::greater_equal", {kCheap}},
    {"aten::grid_sampler", {kMakesOrder}},
    {"aten::group_norm", {kKeepsRank, kKeepsChannelsLast}},
    {"aten::gru", {kRandom}},
    {"aten::gru.data", {kReadsData}},
    {"aten::gt", {kNotDifferentiable, kComputesWithSizes}},
    {"aten::half", {kMayCopy, kReturnsArgumentOfSameType, kCheap}},
    {"aten::hardsigmoid", {}, in_place(kTensorsAgree)},
    {"aten::hardsigmoid_backward", {}, to_output("grad_input", {0, 1}, kTensorsAgree)},
    {"aten::hardswish", {kKeepsChannelsLast}, in_place(kTensorsAgree)},
    {"aten::hardtanh", {kKeepsRank}, in_place(kTensorsAgree)},
    {"aten::hardtanh_backward", {}, to_output("grad_input", {0, 1}, kTensorsAgree)},
    {"aten::histc", {kNotDifferentiable}},
    {"aten::im2col", {kMakesOrder}},
    {"aten::index", {kCheap}},
    {"aten::index_select", {kKeepsOrder}},
    {"aten::indices", {kMayCopy}},
    {"aten::instance_norm", {kUpdatesStatistics, kKeepsOrder}},
    {"aten::int", {kMayCopy, kNotDifferentiable, kCheap}},
    {"aten::__is__", {kKnownFromMetadata}},
    {"aten::is_complex", {kKnownFromMetadata, kFollowsFromType}},
    {"aten::is_contiguous", {kNotDifferentiable, kReadsStrides}},
    {"aten::is_floating_point", {kNotDifferentiable, kReadsMetadataOnly, kKnownFromMetadata, kFollowsFromType}},
    {"aten::is_grad_enabled", {kAsksAutograd}},
    {"aten::is_leaf", {kAsksAutograd}},
    {"aten::is_nonzero", {kNotDifferentiable, kReadsData}},
    {"aten::isclose", {kNotDifferentiable}},
    {"aten::isfinite", {kNotDifferentiable}},
    {"aten::isinf", {kNotDifferentiable}},
    {"aten::isnan", {kNotDifferentiable}},
    {"aten::isneginf", {kNotDifferentiable}},
    {"aten::__isnot__", {kKnownFromMetadata}},
    {"aten::isposinf", {kNotDifferentiable}},
    {"aten::isreal", {kNotDifferentiable}},
    {"aten::item", {kNotDifferentiable, kReadsData, kComputesWithSizes}},
    {"aten::kthvalue", {kOnlyFirstOutputDifferentiable}},
    {"aten::layer_norm", {kKeepsRank, kKeepsOrder}},
    {"aten::le", {kNotDifferentiable, kComputesWithSizes}},
    {"aten::leaky_relu", {kKeepsRank}, in_place(kTensorsAgree)},
    {"aten::leaky_relu_backward", {}, to_output("grad_input", {0, 1}, kTensorsAgree)},
    {"aten::len", {kNotDifferentiable, kKnownFromMetadata}},
    {"aten::less", {kCheap}},
    {"aten::less_equal", {kCheap}},
    {"aten::lift_fresh_copy", {kCheap}},
    {"aten::linalg_cholesky_ex", {kOnlyFirstOutputDifferentiable}},
    {"aten::_linalg_det", {kOnlyFirstOutputDifferentiable}},
    {"aten::linalg_inv_ex", {kOnlyFirstOutputDifferentiable}},
    {"aten::linalg_ldl_factor", {kOnlyFirstOutputDifferentiable}},
    {"aten::linalg_ldl_factor_ex", {kOnlyFirstOutputDifferentiable}},
    {"aten::linalg_lstsq", {kOnlyFirstTwoOutputsDifferentiable}},
    {"aten::linalg_lu", {kFirstOutputNotDifferentiable}},
    {"aten::linalg_lu_factor", {kOnlyFirstOutputDifferentiable}},
    {"aten::linalg_lu_factor_ex", {kOnlyFirstOutputDifferentiable}},
    {"aten::_linalg_slogdet", {kOnlyFirstTwoOutputsDifferentiable}},
    {"aten::_linalg_solve_ex", {kOnlyFirstOutputDifferentiable}},
    {"aten::linalg_solve_ex", {kOnlyFirstOutputDifferentiable}},
    {"aten::linalg_vector_norm", {kKeepsOrder}},
    {"aten::linear", {kComputeIntensive, kMakesOrder}, kProduct},
    {"aten::linspace", {kMakesOrder}},
    {"aten::_local_scalar_dense", {kNotDifferentiable}},
    {"aten::log_sigmoid_forward", {kOnlyFirstOutputDifferentiable}},
    {"aten::_log_softmax", {}, to_output("out", {0}, kRowsAgree)},
    {"aten::log_softmax", {kKeepsRank, kKeepsOrder}},
    {"aten::_log_softmax_backward_data", {}, to_output("out", {0, 1}, kRowsAgree)},
    {"aten::logical_and", {kNotDifferentiable}},
    {"aten::logical_not", {kNotDifferentiable}},
    {"aten::logical_or", {kNotDifferentiable}},
    {"aten::logical_xor", {kNotDifferentiable}},
    {"aten::logsumexp", {kKeepsOrder}},
    {"aten::long", {kMayCopy, kNotDifferentiable, kCheap}},
    {"aten::lstm", {kRandom}},
    {"aten::lstm.data", {kReadsData}},
    {"aten::lt", {kNotDifferentiable, kComputesWithSizes}},
    {"aten::lu_unpack", {kFirstOutputNotDifferentiable}},
    {"aten::_lu_with_info", {kOnlyFirstOutputDifferentiable}},
    {"aten::masked_fill.Scalar", {}, in_place(kMaskFits)},
    {"aten::matmul", {kComputeIntensive, kMakesOrder}, kProduct},
    {"aten::max", {kCheap, kKeepsOrder}},
    {"aten::max_pool1d", {kKeepsOrder}},
    {"aten::max_pool1d_with_indices", {kOnlyFirstOutputDifferentiable}},
    {"aten::max_pool2d", {kKeepsChannelsLast}},
    {"aten::max_pool2d_with_indices", {kOnlyFirstOutputDifferentiable, kKeepsOrder}},
    {"aten::max_pool3d", {kKeepsChannelsLast}},
    {"aten::max_pool3d_with_indices", {kOnlyFirstOutputDifferentiable}},
    {"aten::maximum", {kComputesWithSizes}},
    {"aten::mean", {kCheap, kKeepsChannelsLast, kSpreadsGradient}},
    {"aten::median", {kOnlyFirstOutputDifferentiable}},
    {"aten::meshgrid", {kMayCopy}},
    {"aten::min", {kCheap, kKeepsOrder}},
    {"aten::minimum", {kComputesWithSizes}},
    {"aten::miopen_batch_norm", {kUpdatesStatistics}},
    {"aten::mm", {kComputeIntensive, kMakesOrder}, kProduct},
    {"aten::mode", {kOnlyFirstOutputDifferentiable}},
    {"aten::movedim", {kCheap}},
    {"aten::mul", {kBroadcastsRanks, kComputesWithSizes}},
    {"aten::mul.Scalar", {}, in_place(kScalarsAgree)},
    {"aten::mul.Tensor", {}, to_output("out", {0, 1}, kTensorsAgree)},
    {"aten::multilabel_margin_loss_forward", {kOnlyFirstOutputDifferentiable}},
    {"aten::multinomial", {kNotDifferentiable, kRandom}},
    {"aten::multiply", {kCheap}},
    {"aten::mv", {kComputeIntensive}, kProduct},
    {"aten::nanmedian", {kOnlyFirstOutputDifferentiable}},
    {"aten::narrow", {kKeepsRank, kCheap, kKeepsOrder}},
    {"aten::native_batch_norm", {kOnlyFirstOutputDifferentiable, kUpdatesStatistics}},
    {"aten::_native_batch_norm_legit", {kOnlyFirstOutputDifferentiable, kUpdatesStatistics}},
    {"aten::_native_batch_norm_legit_no_training", {kOnlyFirstOutputDifferentiable, kReadsWhatMayChange}},
    {"aten::native_dropout", {kOnlyFirstOutputDifferentiable}},
    {"aten::native_layer_norm", {kOnlyFirstOutputDifferentiable}},
    {"aten::ne", {kNotDifferentiable, kComputesWithSizes}},
    {"aten::neg", {kKeepsRank, kComputesWithSizes}, in_place(kTensorsAgree)},
    {"aten::negative", {kCheap}},
    {"aten::new_empty", {kNotDifferentiable, kReadsMetadataOnly, kMakesOrder}},
    {"aten::new_full", {kNotDifferentiable, kReadsMetadataOnly, kCheap, kMakesOrder}},
    {"aten::new_ones", {kNotDifferentiable, kReadsMetadataOnly, kCheap, kMakesOrder}},
    {"aten::new_zeros", {kNotDifferentiable, kReadsMetadataOnly, kCheap, kMakesOrder}},
    {"aten::nll_loss2d_forward", {kOnlyFirstOutputDifferentiable}},
    {"aten::nll_loss_forward", {kOnlyFirstOutputDifferentiable}},
    {"aten::nonzero", {kNotDifferentiable}},
    {"aten::nonzero_numpy", {kReadsData}},
    {"aten::norm", {kKeepsOrder}},
    {"aten::not_equal", {kCheap}},
    {"aten::numel", {kNotDifferentiable, kReadsMetadataOnly, kKnownFromMetadata}},
    {"aten::one_hot", {kNotDifferentiable, kReadsData, kMakesOrder}},
    {"aten::ones", {kCheap, kMakesOrder}},
    {"aten::ones_like", {kNotDifferentiable, kReadsMetadataOnly, kKeepsRank, kCheap, kKeepsOrder}},
    {"aten::__or__", {kNotDifferentiable, kCheap}},
    {"aten::output_nr", {kAsksAutograd}},
    {"aten::_pack_padded_sequence", {kOnlyFirstOutputDifferentiable, kReadsData}},
    {"aten::pad", {kKeepsOrder}},
    {"aten::_pad_packed_sequence", {kReadsData}},
    {"aten::permute", {kKeepsRank, kCheap}},
    {"aten::pixel_shuffle", {kKeepsChannelsLast}},
    {"aten::pixel_unshuffle", {kKeepsOrder}},
    {"aten::positive", {kReturnsArgumentOfSameType}},
    {"aten::prelu", {kKeepsChannelsLast}},
    {"aten::rand", {kMakesOrder}},
    {"aten::rand_like", {kNotDifferentiable, kReadsMetadataOnly, kKeepsRank, kKeepsOrder}},
    {"aten::randint_like", {kNotDifferentiable, kReadsMetadataOnly}},
    {"aten::randn", {kMakesOrder}},
    {"aten::randn_like", {kNotDifferentiable, kReadsMetadataOnly, kKeepsRank, kKeepsOrder}},
    {"aten::ravel", {kMayCopy, kKeepsOrder}},
    {"aten::real", {kMayCopy, kReturnsArgumentOfSameType}},
    {"aten::reflection_pad1d", {kKeepsOrder}},
    {"aten::reflection_pad2d", {kKeepsOrder}},
    {"aten::reflection_pad3d", {kKeepsOrder}},
    {"aten::relu", {kKeepsRank}, in_place(kTensorsAgree)},
    {"aten::remainder", {kComputesWithSizes}},
    {"aten::repeat", {kKeepsOrder}},
    {"aten::repeat_interleave", {kReadsData}},
    {"aten::replication_pad1d", {kKeepsOrder}},
    {"aten::replication_pad2d", {kKeepsOrder}},
    {"aten::replication_pad3d", {kKeepsOrder}},
    {"aten::requires_grad", {kAsksAutograd}},
    {"aten::requires_grad_", {kChangesTensorItself}},
    {"aten::reshape", {kMayCopy, kCheap, kKeepsOrder}},
    {"aten::_reshape_alias", {kMayCopy}},
    {"aten::reshape_as", {kMayCopy, kCheap, kKeepsOrder, kReadsMetadataOfSecond}},
    {"aten::resize_", {kChangesTensorItself}},
    {"aten::resize_as_", {kChangesTensorItself}},
    {"aten::resolve_conj", {kMayCopy, kReturnsArgumentOfSameType}},
    {"aten::resolve_neg", {kMayCopy, kReturnsArgumentOfSameType}},
    {"aten::retain_grad", {kChangesTensorItself}},
    {"aten::retains_grad", {kAsksAutograd}},
    {"aten::rms_norm", {kConvertsForItsParts}},
    {"aten::rnn_relu.data", {kReadsData}},
    {"aten::rnn_tanh.data", {kReadsData}},
    {"aten::rrelu", {kRandom}},
    {"aten::rrelu_with_noise", {kRandom}},
    {"aten::rsqrt", {}, in_place(kTensorsAgree)},
    {"aten::rsub", {kComputesWithSizes, kKeepsChannelsLast}},
    {"aten::scalar_tensor", {kCheap, kMakesOrder}},
    {"aten::scaled_dot_product_attention", {kComputeIntensive}, kAttention},
    {"aten::_scaled_dot_product_efficient_attention", {kComputeIntensive}},
    {"aten::_scaled_dot_product_flash_attention", {kComputeIntensive}},
    {"aten::_scaled_dot_product_flash_attention_for_cpu", {kOnlyFirstOutputDifferentiable, kComputeIntensive}},
    {"aten::_scaled_mm", {kComputeIntensive}},
    {"aten::searchsorted", {kNotDifferentiable}},
    {"aten::select", {kCheap, kKeepsOrder}},
    {"aten::select_scatter", {}, in_place(kPartIsPutIn, "aten_recompute::select_scatter_")},
    {"aten::selu_", {kDiffersInPlace}},
    {"aten::set_", {kChangesTensorItself}},
    {"aten::set_data", {kChangesTensorItself}},
    {"aten::sigmoid", {kKeepsRank}, in_place(kTensorsAgree)},
    {"aten::sigmoid_backward", {}, to_output("grad_input", {0, 1}, kTensorsAgree)},
    {"aten::signbit", {kNotDifferentiable}},
    {"aten::silu", {kKeepsRank}, in_place(kTensorsAgree)},
    {"aten::silu_backward", {}, to_output("grad_input", {0, 1}, kTensorsAgree)},
    {"aten::size", {kNotDifferentiable, kReadsMetadataOnly, kKnownFromMetadata}},
    {"aten::slice", {kKeepsRank, kCheap, kKeepsOrder}},
    {"aten::_softmax", {}, to_output("out", {0}, kRowsAgree)},
    {"aten::slice_scatter", {}, in_place(kPartIsPutIn, "aten_recompute::slice_scatter_")},
    {"aten::softmax", {kKeepsRank, kKeepsOrder}},
    {"aten::_softmax_backward_data", {}, to_output("out", {0, 1}, kRowsAgree)},
    {"aten::softplus", {}, to_output("out", {0}, kTensorsAgree)},
    {"aten::softplus_backward", {}, to_output("grad_input", {0, 1}, kTensorsAgree)},
    {"aten::sort", {kOnlyFirstOutputDifferentiable}},
    {"aten::split", {kCheap, kKeepsOrder}},
    {"aten::split_with_sizes", {kCheap, kKeepsOrder}},
    {"aten::sqrt", {}, in_place(kTensorsAgree)},
    {"aten::squeeze", {kCheap, kRankFollowsFromSizes, kKeepsOrder}},
    {"aten::squeeze_", {kChangesTensorItself, kRankFollowsFromSizes}},
    {"aten::stack", {kKeepsOrder}},
    {"aten::std", {kCheap, kKeepsOrder}},
    {"aten::storage_offset", {kNotDifferentiable, kKnownFromMetadata, kReadsStrides}},
    {"aten::stride", {kNotDifferentiable, kKnownFromMetadata, kReadsStrides}},
    {"aten::sub", {kBroadcastsRanks, kComputesWithSizes}},
    {"aten::sub.Scalar", {}, in_place(kScalarsAgree)},
    {"aten::sub.Tensor", {}, to_output("out", {0, 1}, kTensorsAgree)},
    {"aten::subtract", {kCheap}},
    {"aten::sum", {kCheap, kKeepsChannelsLast, kSpreadsGradient}},
    {"aten::sum_to_size", {kReturnsArgumentOfSameLayout, kCheap}},
    {"aten::swapaxes", {kCheap}},
    {"aten::swapaxes_", {kChangesTensorItself}},
    {"aten::t", {kCheap}},
    {"aten::t_", {kChangesTensorItself}},
    {"aten::tanh", {kKeepsRank}, in_place(kTensorsAgree)},
    {"aten::tanh_backward", {}, to_output("grad_input", {0, 1}, kTensorsAgree)},
    {"aten::tensor_split.tensor_indices_or_sections", {kReadsData}},
    {"aten::tensor", {kMakesOrder}},
    {"aten::tensor_split", {kKeepsOrder}},
    {"aten::tensordot", {kComputeIntensive}},
    {"aten::threshold_backward", {}, to_output("grad_input", {0, 1}, kTensorsAgree)},
    {"aten::tile", {kKeepsOrder}},
    {"aten::to", {kMayCopy, kReturnsArgumentOfSameType, kKeepsRank, kComputesWithSizes, kCheap, kKeepsOrder, kReadsMetadataOfSecond}},
    {"aten::_to_copy", {kMayCopy, kCheap}},
    {"aten::tolist", {kNotDifferentiable, kReadsData}},
    {"aten::topk", {kOnlyFirstOutputDifferentiable}},
    {"aten::transpose", {kKeepsRank, kCheap}},
    {"aten::transpose_", {kChangesTensorItself}},
    {"aten::tril", {kCheap}},
    {"aten::tril_indices", {kNotDifferentiable}},
    {"aten::triu", {kCheap}},
    {"aten::triu_indices", {kNotDifferentiable}},
    {"aten::type_as", {kMayCopy, kReturnsArgumentOfSameType, kKeepsRank, kCheap, kKeepsOrder, kReadsMetadataOfSecond}},
    {"aten::unbind", {kCheap, kKeepsOrder}},
    {"aten::unflatten", {kCheap, kKeepsOrder}},
    {"aten::_unique", {kOnlyFirstOutputDifferentiable}},
    {"aten::_unique2", {kOnlyFirstOutputDifferentiable}},
    {"aten::unique_consecutive", {kOnlyFirstOutputDifferentiable}},
    {"aten::unique_dim", {kOnlyFirstOutputDifferentiable}},
    {"aten::unique_dim_consecutive", {kOnlyFirstOutputDifferentiable}},
    {"aten::unsafe_chunk", {kKeepsOrder}},
    {"aten::unsafe_split", {kKeepsOrder}},
    {"aten::_unsafe_view", {kCheap, kKeepsOrder}},
    {"aten::unsqueeze", {kCheap, kKeepsOrder}},
    {"aten::unsqueeze_", {kChangesTensorItself}},
    {"aten::_unwrap_optional", {kCast, kMovesValues, kKnownFromMetadata}},
    {"aten::upsample_bicubic2d", {kKeepsOrder}},
    {"aten::upsample_bilinear2d", {kComputeIntensive, kKeepsChannelsLast}},
    {"aten::upsample_nearest2d", {kKeepsChannelsLast}},
    {"aten::upsample_nearest3d", {kKeepsChannelsLast}},
    {"aten::upsample_trilinear3d", {kKeepsChannelsLast}},
    {"aten::values", {kMayCopy}},
    {"aten::var", {kCheap, kKeepsOrder}},
    {"aten::var_mean", {kCheap}},
    {"aten::_version", {kAsksAutograd}},
    {"aten::view", {kCheap, kKeepsOrder}},
    {"aten::view_as", {kCheap, kKeepsOrder, kReadsMetadataOfSecond}},
    {"aten::_weight_norm_interface", {kOnlyFirstOutputDifferentiable}},
    {"aten::where.", {kReadsData}},
    {"aten::__xor__", {kNotDifferentiable, kCheap}},
    {"aten::zeros", {kCheap, kMakesOrder}},
    {"aten::zeros_like", {kNotDifferentiable, kReadsMetadataOnly, kKeepsRank, kCheap, kKeepsOrder}},
    {"prim::data", {kNotDifferentiable, kCheap}},
    {"prim::ListConstruct", {kMovesValues, kKnownFromMetadata}},
    {"prim::ListUnpack", {kMovesValues, kKnownFromMetadata}},
    {"prim::NumToTensor", {kComputesWithSizes, kMakesOrder}},
    {"prim::TupleConstruct", {kMovesValues, kKnownFromMetadata}},
    {"prim::TupleIndex", {kMovesValues, kKnownFromMetadata}},
    {"prim::TupleUnpack", {kMovesValues, kKnownFromMetadata}},
    {"prim::device", {kKnownFromRealTensor, kFollowsFromType}},
    {"prim::dtype", {kKnownFromMetadata, kFollowsFromType}},
    {"prim::grad", {kRunsAutograd}},
    {"prim::is_cpu", {kFollowsFromType}},
    {"prim::is_cuda", {kFollowsFromType}},
    {"prim::layout", {kKnownFromMetadata, kFollowsFromType}},
    {"prim::requires_grad", {kAsksAutograd}},
    {"prim::tolist", {kReadsData}},
    {"prim::unchecked_cast", {kCast, kMovesValues, kKnownFromMetadata}},
    {"prim::unchecked_unwrap_optional", {kCast, kMovesValues, kKnownFromMetadata}},
    {"aten_recompute::accumulate", {kMayCopy, kCheap, kComposed}, by_itself({0, 1})},
    {"aten_recompute::accumulate_list", {kMayCopy}},
    {"aten_recompute::apply_alpha_dropout_mask", {kCheap}},
    {"aten_recompute::apply_dropout_mask", {kCheap}, in_place(kLoopsApply)},
    {"aten_recompute::as_strided_backward", {kComposed}},
    {"aten_recompute::at_least", {kCheap}},
    {"aten_recompute::attention", {kComputeIntensive}, kAttention},
    {"aten_recompute::attention_backward", {}, kAttentionBackward},
    {"aten_recompute::attention_dropout", {kNotDifferentiable, kRandom}},
    {"aten_recompute::batch_norm", {kUpdatesStatistics}},
    {"aten_recompute::bernoulli_in_place", {kRandom}},
    {"aten_recompute::broadcast_tensors_backward", {kMayCopy, kComposed}},
    {"aten_recompute::cat_backward", {kMayCopy, kComposed}},
    {"aten_recompute::channels_first", {kMayCopy}},
    {"aten_recompute::channels_last", {kMayCopy}},
    {"aten_recompute::clamped_batch_norm", {kUpdatesStatistics}},
    {"aten_recompute::composed_dropout_mask", {kNotDifferentiable, kRandom}},
    {"aten_recompute::contiguous_unless_channels_last", {kMayCopy}},
    {"aten_recompute::convolution_backward", {kComposed}, kConvolutionBackward},
    {"aten_recompute::convolution_mode_backward", {kComposed}, kConvolutionBackward},
    {"aten_recompute::cumsum_backward", {kMayCopy, kComposed}},
    {"aten_recompute::dropout_in_place", {kKeepsRank, kDropout, kKeepsOrder, kRandom}},
    {"aten_recompute::dropout_mask", {kNotDifferentiable, kRandom}},
    {"aten_recompute::dtypes", {kKnownFromRealTensor}},
    {"aten_recompute::elu_in_place", {}, in_place(kTensorsAgree, "aten::elu_")},
    {"aten_recompute::evenly_distribute_backward", {kComposed}},
    {"aten_recompute::feature_dropout_mask", {kNotDifferentiable, kRandom}},
    {"aten_recompute::gather_backward", {kComposed}},
    {"aten_recompute::gradient", {kRunsAutograd}},
    {"aten_recompute::gradient_of_rule", {kMayCopy}},
    {"aten_recompute::grid_sampler_backward", {kComposed}},
    {"aten_recompute::gru_layer", {kComputeIntensive}, kRecurrentLayer},
    {"aten_recompute::gru_layer_backward", {}, kRecurrentLayerBackward},
    {"aten_recompute::in_layout", {kMayCopy, kComposed}},
    {"aten_recompute::index_backward", {kComposed}},
    {"aten_recompute::index_source_gradient", {kComposed}},
    {"aten_recompute::instance_norm", {kUpdatesStatistics}},
    {"aten_recompute::instance_statistics", {kNotDifferentiable, kUpdatesStatistics}},
    {"aten_recompute::layout", {kKnownFromRealTensor}},
    {"aten_recompute::linear", {kComputeIntensive}, kProduct},
    {"aten_recompute::linear_flattens", {kKnownFromMetadata}},
    {"aten_recompute::linear_grad_bias", {kMayCopy, kComposed}},
    {"aten_recompute::linear_grad_input", {kComposed}, kProduct},
    {"aten_recompute::linear_grad_weight", {kComposed}, kProduct},
    {"aten_recompute::list_gradient", {kMayCopy, kKnownFromMetadata}},
    {"aten_recompute::lstm_layer", {kComputeIntensive}, kLstmLayer},
    {"aten_recompute::lstm_layer_backward", {}, kLstmLayerBackward},
    {"aten_recompute::mark_layer", {kMarker, kMovesValues}},
    {"aten_recompute::masked_select_backward", {kComposed}},
    {"aten_recompute::matmul", {kComputeIntensive, kComposed}, kProduct},
    {"aten_recompute::matmul_grad_other", {kComposed}, kProduct},
    {"aten_recompute::matmul_grad_self", {kComposed}, kProduct},
    {"aten_recompute::mm_grad_mat2", {kComposed}, kProduct},
    {"aten_recompute::mm_grad_self", {kComposed}, kProduct},
    {"aten_recompute::must_recompute", {kMarker, kMovesValues}},
    {"aten_recompute::must_save", {kMarker, kMovesValues}},
    {"aten_recompute::multiply_by_noise", {kCheap}, in_place(kLoopsApply)},
    {"aten_recompute::norm_backward", {kComposed}},
    {"aten_recompute::optional_list", {kMayCopy, kMovesValues, kKnownFromMetadata}},
    {"aten_recompute::pack_bits", {kCheap}},
    {"aten_recompute::pad_backward", {kMayCopy, kComposed}},
    {"aten_recompute::pad_backward_of_self", {kMayCopy, kComposed}},
    {"aten_recompute::positive_bits", {kCheap}},
    {"aten_recompute::pow_grad_exponent", {kComposed}},
    {"aten_recompute::pow_grad_exponent_of_scalar", {kComposed}},
    {"aten_recompute::prefer_recompute", {kMarker, kMovesValues}},
    {"aten_recompute::prefer_save", {kMarker, kMovesValues}},
    {"aten_recompute::prod_backward", {kMayCopy, kComposed}},
    {"aten_recompute::prod_dim_backward", {kMayCopy, kComposed}},
    {"aten_recompute::reduce_grad", {kMayCopy, kCheap, kComposed}},
    {"aten_recompute::repeat_backward", {kMayCopy, kComposed}},
    {"aten_recompute::repeat_interleave_backward", {kComposed}},
    {"aten_recompute::require_grad", {kMovesValues}},
    {"aten_recompute::rnn_layer", {kComputeIntensive}, kRecurrentLayer},
    {"aten_recompute::rnn_layer_backward", {}, kRecurrentLayerBackward},
    {"aten_recompute::scatter_extremum_backward", {kComposed}},
    {"aten_recompute::scatter_mean_backward", {kComposed}},
    {"aten_recompute::scatter_product_backward", {kComposed}},
    {"aten_recompute::selects_backward", {kComposed, kMakesOrder}},
    {"aten_recompute::sgn_grad", {kCheap, kComposed}},
    {"aten_recompute::slices_backward", {kComposed, kMakesOrder}},
    {"aten_recompute::size_of", {kKnownFromMetadata}},
    {"aten_recompute::sizes", {kKnownFromRealTensor}},
    {"aten_recompute::snapshot", {kNotDifferentiable, kReadsWhatMayChange}},
    {"aten_recompute::split_backward", {kComposed}},
    {"aten_recompute::split_with_sizes_backward", {kComposed}},
    {"aten_recompute::stack_backward", {kMayCopy, kComposed}},
    {"aten_recompute::stand_in", {kNotDifferentiable}},
    {"aten_recompute::take_along_dim_backward", {kComposed}},
    {"aten_recompute::tensor_split_backward", {kComposed}},
    {"aten_recompute::tensor_split_indices_backward", {kComposed}},
    {"aten_recompute::threshold_backward_bits", {kCheap}, in_place(kBitsFit)},
    {"aten_recompute::unbind_backward", {kComposed}},
    {"aten_recompute::unpack_bits", {kCheap}},
    {"aten_recompute::var_mean_backward", {kComposed}},
    {"aten_recompute::with_gaps_of", {kMayCopy, kCheap}},
  };
  return table;
}
// clang-format on

uint64_t bits_of(const std::vector<Fact>& facts) {
  uint64_t bits = 0;
  for (const auto fact : facts)
    bits |= uint64_t{1} << static_cast<unsigned>(fact);
  return bits;
}

// Returns the row's overwriting form, with the name of the writer filled in.
std::optional<OverwritingForm> overwriting_of(const Row& row) {
  auto form = row.overwriting;
  if (!form || form->condition == kSumsAgree || !form->writer.empty())
    return form;
  form->writer = row.kind() + (form->takes_output ? "" : "_");
  if (!form->takes_output)
    form->overload = row.overload();
  return form;
}

struct Table {
  std::unordered_map<c10::Symbol, OperatorFacts> by_kind;
  // Keys are qualified_operator_name(). Facts about all overloads are repeated here.
  std::unordered_map<std::string, OperatorFacts> by_overload;
  std::unordered_set<c10::Symbol> has_overload_rows;
};

Table make_table() {
  Table table;
  for (const auto& row : rows()) {
    if (!row.is_overload()) {
      table.by_kind[c10::Symbol::fromQualString(row.name)] = {bits_of(row.facts), row.flops,
                                                              overwriting_of(row)};
    }
  }
  for (const auto& row : rows()) {
    if (!row.is_overload())
      continue;
    const auto kind = c10::Symbol::fromQualString(row.kind());
    table.has_overload_rows.insert(kind);
    auto facts = table.by_kind[kind];
    facts.facts |= bits_of(row.facts);
    facts.overwriting = overwriting_of(row);
    table.by_overload[row.overload().empty() ? row.kind() : row.name] = facts;
  }
  return table;
}

const Table& the_table() {
  static const Table table = make_table();
  return table;
}

}  // namespace

const OperatorFacts& operator_facts(const torch::jit::Node* node) {
  static const OperatorFacts nothing;
  const auto& table = the_table();
  if (table.has_overload_rows.count(node->kind()) != 0) {
    const auto found = table.by_overload.find(qualified_operator_name(node));
    if (found != table.by_overload.end())
      return found->second;
  }
  const auto found = table.by_kind.find(node->kind());
  return found == table.by_kind.end() ? nothing : found->second;
}

const OverwritingForm* overwriting_form(const torch::jit::Node* node) {
  const auto& facts = operator_facts(node);
  if (!facts.overwriting)
    return nullptr;
  const auto* schema = node->maybeSchema();
  const bool is_kind_row = the_table().has_overload_rows.count(node->kind()) == 0;
  if (is_kind_row && (schema == nullptr || !schema->overload_name().empty()))
    return nullptr;
  return &*facts.overwriting;
}

bool has_fact(const torch::jit::Node* node, Fact fact) {
  return operator_facts(node).has(fact);
}

std::vector<std::string> operators_with(Fact fact) {
  std::vector<std::string> names;
  for (const auto& [kind, facts] : the_table().by_kind) {
    if (facts.has(fact))
      names.emplace_back(kind.is_aten() ? kind.toUnqualString() : kind.toQualString());
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> operator_fact_rows() {
  std::vector<std::string> names;
  for (const auto& row : rows())
    names.push_back(row.name);
  return names;
}

bool is_backward_of_whole_view(const std::string& autograd_node) {
  static const std::unordered_set<std::string> names{
      "AliasBackward0",     "PermuteBackward0",   "ReshapeAliasBackward0",
      "SqueezeBackward0",   "SqueezeBackward1",   "SqueezeBackward2",
      "TBackward0",         "TransposeBackward0", "UnsafeViewBackward0",
      "UnsqueezeBackward0", "ViewBackward0"};
  return names.count(autograd_node) != 0;
}

}  // namespace aten_recompute
