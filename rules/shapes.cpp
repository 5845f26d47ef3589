#include "rules/shapes.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/Parallel.h>
#include <ATen/SDPBackend.h>
#include <ATen/ScalarOps.h>
#include <ATen/Version.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "rules/convolution_shapes.h"
#include "rules/image_shapes.h"
#include "rules/kernels/batch_norm.h"
#include "rules/shape_operands.h"
#include "runtime/meta_memory.h"

namespace aten_recompute {
namespace {

using at::Tensor;
using c10::IValue;
using shapes::bytes_of;
using shapes::dense_copy;
using shapes::empty;
using shapes::Operands;
using shapes::scratch;
using shapes::Sizes;
using torch::jit::Stack;

// Returns the results; nothing where the operator itself has to run.
using Describe = Stack (*)(const Operands& operands);

// ---- results like an operand ----

Stack like_first(const Operands& operands) {
  return {at::empty_like(operands[0].toTensor())};
}

Stack like_second(const Operands& operands) {
  return {at::empty_like(operands[1].toTensor())};
}

// ---- masks ----

Stack mask_like(const Operands& operands) {
  const auto& x = operands[0].toTensor();
  return {at::empty_like(x, x.options().dtype(at::kBool))};
}

Stack bits_of(const Operands& operands) {
  const auto& mask = operands[0].toTensor();
  return {empty({(mask.numel() + 7) / 8}, mask.options().dtype(at::kByte))};
}

Stack mask_of_bits(const Operands& operands) {
  const auto size = operands[1].toIntVector();
  const auto stride = operands[2].toIntVector();
  return {at::detail::empty_strided_meta(size, stride, at::kBool)};
}

// ---- embeddings ----

Stack embedding(const Operands& operands) {
  const auto& weight = operands[0].toTensor();
  auto sizes = operands[1].toTensor().sizes().vec();
  sizes.push_back(weight.size(1));
  return {empty(sizes, weight.options())};
}

Stack embedding_backward(const Operands& operands) {
  const auto& grad = operands[0].toTensor();
  return {empty({operands[2].toInt(), grad.size(-1)}, grad.options())};
}

Stack index_select(const Operands& operands) {
  const auto& self = operands[0].toTensor();
  auto sizes = self.sizes().vec();
  if (!sizes.empty())
    sizes[at::maybe_wrap_dim(operands[1].toInt(), self.dim())] = operands[2].toTensor().numel();
  return {empty(sizes, self.options())};
}

// ATen puts gradients into new zeros. For meta tensors, it makes these zeros a second time.
Stack selecting_reduction_backward(const Operands& operands) {
  return {empty(operands.named("sizes").toIntVector(), operands[0].toTensor().options())};
}

Stack arange(const Operands& operands) {
  const auto number = [&](const char* name, double fallback) {
    const auto value = operands.named(name);
    return value.isScalar() ? value.toScalar().toDouble() : fallback;
  };
  const auto count = std::ceil((number("end", 0.0) - number("start", 0.0)) / number("step", 1.0));
  const auto dtype = operands.named("dtype");
  const auto end = operands.named("end");
  const auto inferred = end.isScalar() && end.toScalar().isFloatingPoint()
                            ? c10::typeMetaToScalarType(at::get_default_dtype())
                            : at::kLong;
  return {empty({static_cast<int64_t>(std::max(count, 0.0))},
                at::TensorOptions().dtype(dtype.isInt() ? dtype.toScalarType() : inferred))};
}

// ---- norms ----

Stack layer_norm(const Operands& operands) {
  const auto& input = operands[0].toTensor();
  const auto count = operands[1].toIntVector().size();
  auto sizes = input.sizes().vec();
  std::fill(sizes.end() - static_cast<std::ptrdiff_t>(std::min(count, sizes.size())), sizes.end(),
            1);
  const auto weight = operands.tensor("weight");
  const bool is_mixed = weight.defined() && weight.scalar_type() != input.scalar_type();
  const auto options = input.options().dtype(is_mixed ? at::kFloat : input.scalar_type());
  return {at::empty_like(input, at::MemoryFormat::Contiguous), empty(sizes, options),
          empty(sizes, options)};
}

// Returns gradients like these tensors, undefined where they are not asked for.
Stack gradients_like(const std::vector<Tensor>& tensors, const IValue& mask) {
  Stack gradients;
  const auto asked = mask.toBoolList();
  for (size_t i = 0; i < tensors.size(); ++i) {
    gradients.emplace_back(asked.get(i) && tensors[i].defined()
                               ? at::empty_like(tensors[i], at::MemoryFormat::Contiguous)
                               : Tensor());
  }
  return gradients;
}

Stack layer_norm_backward(const Operands& operands) {
  const auto weight = operands.tensor("weight");
  const Tensor partial_sums = scratch(int64_t{2} * at::get_num_threads() * bytes_of(weight));
  return gradients_like({operands[1].toTensor(), weight, operands.tensor("bias")},
                        operands.named("output_mask"));
}

Stack norm_and_statistics(const Operands& operands, bool training) {
  const auto& input = operands[0].toTensor();
  const auto options = input.options().dtype(
      at::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type());
  const Sizes channels{training ? input.size(1) : 0};
  return {at::empty_like(input, input.suggest_memory_format()), empty(channels, options),
          empty(channels, options), empty({0}, input.options().dtype(at::kByte)), int64_t{0}};
}

Stack shape_of_batch_norm(const Operands& operands) {
  return norm_and_statistics(operands, operands.named("training").toBool());
}

Stack shape_of_instance_norm(const Operands& operands) {
  return norm_and_statistics(operands, /*training=*/true);
}

Stack batch_norm_result(const Operands& operands) {
  const auto& input = operands[0].toTensor();
  return {at::empty_like(input, input.suggest_memory_format())};
}

Stack batch_norm_backward(const Operands& operands) {
  const auto input = operands.tensor("input");
  const auto weight = operands.tensor("weight");
  const auto asked = operands.named("mask").toBoolList();
  const auto channels =
      empty({input.size(1)}, weight.defined() ? weight.options() : input.options());
  const bool is_made_twice = asked.get(0) && !has_batch_norm_kernels(input);
  const Tensor second = scratch(is_made_twice ? bytes_of(input) : 0);
  return {asked.get(0) ? at::empty_like(input, input.suggest_memory_format()) : Tensor(),
          asked.get(1) ? at::empty_like(channels) : Tensor(),
          asked.get(2) ? at::empty_like(channels) : Tensor()};
}

// ---- losses ----

Stack loss_and_weight(const Operands& operands) {
  const auto& input = operands[0].toTensor();
  const auto reduction = operands.named("reduction").toInt();
  Sizes sizes;
  if (reduction == 0) {
    sizes = input.sizes().vec();
    sizes.erase(sizes.begin() + (sizes.size() > 1 ? 1 : 0));
  }
  return {empty(sizes, input.options()), empty({}, input.options())};
}

Stack loss_alone(const Operands& operands) {
  auto results = loss_and_weight(operands);
  results.pop_back();
  return results;
}

Stack like_input(const Operands& operands) {
  return {at::empty_like(operands.tensor("input"), at::MemoryFormat::Contiguous)};
}

// Reading such a tensor gives zeros, so it takes no memory (rules/kernels/stand_in.h).
Stack stand_in(const Operands& operands) {
  const auto layout = operands[0].toIntVector();
  const auto sizes = layout.begin() + 3;
  const auto strides = sizes + (layout.end() - sizes) / 2;
  const PauseMetaMemory pause;
  const Tensor tensor = at::detail::empty_strided_meta(
      Sizes(sizes, strides), Sizes(strides, layout.end()), static_cast<at::ScalarType>(layout[0]));
  exempt_meta_memory(tensor);
  return {tensor};
}

// ---- attention ----

// Returns whether the CPU's fused kernel computes the attention.
bool is_fused(const Operands& operands) {
  const auto query = operands.tensor("query");
  const auto key = operands.tensor("key");
  const auto value = operands.tensor("value");
  const auto mask = operands.tensor("attn_mask");
  const auto dims = query.dim() == 4 && key.dim() == 4 && value.dim() == 4;
  return dims && at::globalContext().userEnabledFlashSDP() &&
         at::isFloatingType(query.scalar_type()) && operands.named("dropout_p").toDouble() == 0.0 &&
         !operands.named("enable_gqa").toBool() && !operands.named("needs_attn_mask").toBool() &&
         query.size(-1) == key.size(-1) && query.size(-1) == value.size(-1) && query.numel() > 0 &&
         key.numel() > 0 && query.stride(-1) == 1 && key.stride(-1) == 1 && value.stride(-1) == 1 &&
         (!mask.defined() || mask.dim() == 2 || mask.dim() == 4);
}

// Returns a tensor [batch, heads, length, ...] of which the heads of one position lie together.
Tensor by_position(const Sizes& sizes, const at::TensorOptions& options) {
  auto in_memory = sizes;
  std::swap(in_memory[1], in_memory[2]);
  return empty(in_memory, options).transpose(1, 2);
}

Stack attention(const Operands& operands) {
  if (!is_fused(operands))
    return {};
  const auto query = operands.tensor("query");
  const auto type = query.scalar_type();
  const auto statistics =
      query.options().dtype(at::isReducedFloatingType(type) ? at::kFloat : type);
  const Tensor none = empty({0}, query.options());
  return {by_position(query.sizes().vec(), query.options()),
          by_position(query.sizes().slice(0, 3).vec(), statistics),
          none,
          none,
          int64_t{0},
          int64_t{0},
          static_cast<int64_t>(at::SDPBackend::flash_attention)};
}

Stack attention_backward(const Operands& operands) {
  if (!is_fused(operands))
    return {};
  Stack gradients;
  for (const char* name : {"query", "key", "value"}) {
    const auto tensor = operands.tensor(name);
    gradients.emplace_back(by_position(tensor.sizes().vec(), tensor.options()));
  }
  gradients.emplace_back(operands.tensor("grad"));
  return gradients;
}

// ---- LSTM ----

// Returns whether oneDNN computes the layer.
bool is_in_onednn(const Operands& operands) {
  return at::hasMKLDNN() && at::globalContext().userEnabledMkldnn() &&
         operands.tensor("input").scalar_type() == at::kFloat &&
         !operands.tensor("weight_projection").defined();
}

// Rows of oneDNN's workspace do not begin at multiples of 256 bytes.
int64_t row_bytes(int64_t elements) {
  const auto bytes = (elements * 4 + 63) / 64 * 64;
  return bytes % 256 == 0 ? bytes + 64 : bytes;
}

// The gates of all steps, and what a step of the backward reads and writes of its neighbors.
int64_t onednn_workspace(int64_t steps, int64_t batch, int64_t size) {
  const auto states = 2 * (steps + 1) * batch;
  return steps * batch * (row_bytes(4 * size) + row_bytes(size)) +
         states * (3 * row_bytes(size) + 8 * size);
}

Stack shape_of_lstm_layer(const Operands& operands) {
  if (!is_in_onednn(operands))
    return {};
  const auto input = operands.tensor("input");
  const auto h0 = operands.tensor("h0");
  const auto size = h0.size(1);
  const auto output = empty({input.size(0), input.size(1), size}, input.options());
  const auto hidden = empty(h0.sizes().vec(), input.options());
  const auto workspace = empty({onednn_workspace(input.size(0), input.size(1), size)},
                               input.options().dtype(at::kByte));
  scratch(bytes_of(operands.tensor("weight_input")) + bytes_of(operands.tensor("weight_hidden")) +
          5 * bytes_of(output));
  return {output, hidden, at::empty_like(hidden), workspace, empty({0}, input.options())};
}

Stack lstm_layer_backward(const Operands& operands) {
  if (!is_in_onednn(operands))
    return {};
  Stack gradients;
  int64_t weights = 0;
  for (const char* name :
       {"input", "h0", "c0", "weight_input", "weight_hidden", "bias_input", "bias_hidden"}) {
    const auto tensor = operands.tensor(name);
    weights += tensor.defined() && tensor.dim() == 2 ? bytes_of(tensor) : 0;
    gradients.emplace_back(tensor.defined() ? at::empty_like(tensor, at::MemoryFormat::Contiguous)
                                            : Tensor());
  }
  gradients.emplace_back(Tensor());
  scratch(2 * weights + 4 * bytes_of(operands.tensor("output")));
  return gradients;
}

// ---- attention as a method calls it ----

Stack attention_result(const Operands& operands) {
  const auto query = operands.tensor("query");
  auto sizes = query.sizes().vec();
  sizes.back() = operands.tensor("value").size(-1);
  return {empty(sizes, query.options())};
}

// ---- group norm and interpolation ----

Stack group_norm(const Operands& operands) {
  const auto input = operands.tensor("input");
  const Sizes sizes{input.size(0), operands.named("num_groups").toInt()};
  return {at::empty_like(input, input.suggest_memory_format()), empty(sizes, input.options()),
          empty(sizes, input.options())};
}

Stack group_norm_backward(const Operands& operands) {
  const auto input = operands.tensor("input");
  const auto weight = operands.tensor("weight");
  return gradients_like({input, weight, weight}, operands.named("mask"));
}

// A kernel for channels that lie together serves small images, too, on copies.
Stack bilinear(const Operands& operands) {
  const auto& input = operands[0].toTensor();
  if (input.dim() != 4 || input.suggest_memory_format() != at::MemoryFormat::Contiguous)
    return {};
  Sizes sizes{input.size(0), input.size(1)};
  const auto size = operands.named("output_size");
  const auto factors = operands.named("scale_factors");
  for (size_t i = 0; i < 2; ++i) {
    const auto old = static_cast<double>(input.size(static_cast<int64_t>(i) + 2));
    sizes.push_back(size.isIntList() ? size.toIntVector().at(i)
                                     : static_cast<int64_t>(old * factors.toDoubleVector().at(i)));
  }
  const auto output = empty(sizes, input.options());
  if (sizes[2] + sizes[3] <= 128)
    scratch(bytes_of(input) + bytes_of(output));
  return {output};
}

Stack bilinear_backward(const Operands& operands) {
  const auto& grad = operands[0].toTensor();
  if (grad.dim() != 4 || grad.suggest_memory_format() != at::MemoryFormat::Contiguous)
    return {};
  scratch(dense_copy(grad));
  return {empty(operands.named("input_size").toIntVector(), grad.options())};
}

// ---- elementwise ----

Stack absolute(const Operands& operands) {
  const auto& input = operands[0].toTensor();
  return {at::empty_like(input, input.options().dtype(c10::toRealValueType(input.scalar_type())))};
}

// Operands may be numbers.
Stack choice(const Operands& operands) {
  const auto condition = operands.tensor("condition");
  const auto self = operands.named("self");
  const auto other = operands.named("other");
  if (!condition.defined() || self.isNone() || other.isNone())
    return {};
  auto sizes = condition.sizes().vec();
  at::native::ResultTypeState types{};
  for (const auto& each : {self, other}) {
    if (each.isTensor()) {
      sizes = at::infer_size(sizes, each.toTensor().sizes());
      types = at::native::update_result_type_state(each.toTensor(), types);
    } else {
      types = at::native::update_result_type_state(
          at::native::wrapped_scalar_tensor(each.toScalar()), types);
    }
  }
  return {empty(sizes, condition.options().dtype(at::native::result_type(types)))};
}

Stack like_self(const Operands& operands) {
  return {at::empty_like(operands.tensor("self"))};
}

Stack loss_like_self(const Operands& operands) {
  const auto self = operands.tensor("self");
  return {operands.named("reduction").toInt() == 0 ? at::empty_like(self)
                                                   : empty({}, self.options())};
}

// ATen reduces a tensor of the losses of all elements, which broadcast.
Stack loss_of_pair(const Operands& operands) {
  const auto self = operands.tensor("self");
  const auto target = operands.tensor("target");
  const auto options = self.options().dtype(at::result_type(self, target));
  auto losses = self.sizes() == target.sizes()
                    ? at::empty_like(self, options)
                    : empty(at::infer_size(self.sizes(), target.sizes()), options);
  if (operands.named("reduction").toInt() == 0)
    return {std::move(losses)};
  return {empty({}, options)};
}

// ATen composes it of operators on tensors of this size.
Stack loss_of_logits(const Operands& operands) {
  scratch(2 * bytes_of(operands.tensor("self")));
  return loss_like_self(operands);
}

Stack gradient_of_logits(const Operands& operands) {
  scratch(2 * bytes_of(operands.tensor("self")));
  return like_self(operands);
}

const std::unordered_map<std::string_view, Describe>& shape_functions() {
  static const std::unordered_map<std::string_view, Describe> functions{
      {"aten_recompute::dropout_mask", &mask_like},
      {"aten_recompute::composed_dropout_mask", &mask_like},
      {"aten_recompute::apply_dropout_mask", &like_first},
      {"aten_recompute::multiply_by_noise", &like_first},
      {"aten_recompute::pack_bits", &bits_of},
      {"aten_recompute::positive_bits", &bits_of},
      {"aten_recompute::unpack_bits", &mask_of_bits},
      {"aten_recompute::threshold_backward_bits", &like_first},
      {"aten::embedding", &embedding},
      {"aten::embedding_backward", &embedding_backward},
      {"aten::embedding_dense_backward", &embedding_backward},
      {"aten::native_layer_norm", &layer_norm},
      {"aten::native_layer_norm_backward", &layer_norm_backward},
      {"aten_recompute::batch_norm", &shape_of_batch_norm},
      {"aten_recompute::instance_norm", &shape_of_instance_norm},
      {"aten_recompute::clamped_batch_norm", &batch_norm_result},
      {"aten_recompute::batch_norm_from_statistics", &batch_norm_result},
      {"aten_recompute::batch_norm_backward", &batch_norm_backward},
      {"aten_recompute::batch_norm_as_seen", &batch_norm_result},
      {"aten::batch_norm", &batch_norm_result},
      {"aten::instance_norm", &batch_norm_result},
      {"aten::group_norm", &batch_norm_result},
      {"aten::layer_norm", &batch_norm_result},
      {"aten::rms_norm", &batch_norm_result},
      {"aten::scaled_dot_product_attention", &attention_result},
      {"aten::cross_entropy_loss", &loss_alone},
      {"aten::nll_loss2d", &loss_alone},
      {"aten::nll_loss_nd", &loss_alone},
      {"aten_recompute::nll_loss", &loss_and_weight},
      {"aten_recompute::nll_loss_backward", &like_input},
      {"aten_recompute::cross_entropy", &loss_and_weight},
      {"aten_recompute::cross_entropy_backward", &like_input},
      {"aten::mse_loss_backward", &like_second},
      {"aten::smooth_l1_loss_backward", &like_second},
      {"aten::huber_loss_backward", &like_second},
      {"aten_recompute::stand_in", &stand_in},
      {"aten_recompute::attention", &attention},
      {"aten_recompute::attention_backward", &attention_backward},
      {"aten_recompute::lstm_layer", &shape_of_lstm_layer},
      {"aten_recompute::lstm_layer_backward", &lstm_layer_backward},
      {"aten_recompute::group_norm", &group_norm},
      {"aten_recompute::group_norm_backward", &group_norm_backward},
      {"aten::upsample_bilinear2d", &bilinear},
      {"aten::upsample_bilinear2d_backward", &bilinear_backward},
      {"aten::conv1d", &shapes::convolution},
      {"aten::conv2d", &shapes::convolution},
      {"aten::conv3d", &shapes::convolution},
      {"aten::convolution", &shapes::convolution},
      {"aten::_convolution", &shapes::convolution},
      {"aten::conv_transpose1d", &shapes::transposed_convolution},
      {"aten::conv_transpose2d", &shapes::transposed_convolution},
      {"aten::conv_transpose3d", &shapes::transposed_convolution},
      {"aten_recompute::convolution_backward", &shapes::convolution_backward},
      {"aten_recompute::convolution_mode_backward", &shapes::convolution_backward},
      {"aten::relu", &like_first},
      {"aten::arange", &arange},
      {"aten::index_select", &index_select},
      {"aten::value_selecting_reduction_backward", &selecting_reduction_backward},
      {"aten::abs", &absolute},
      {"aten::where", &choice},
      {"aten::flip", &like_self},
      {"aten::hardswish", &like_self},
      {"aten::hardswish_backward", &like_self},
      {"aten::glu_backward", &like_self},
      {"aten::huber_loss", &loss_like_self},
      {"aten::mse_loss", &loss_of_pair},
      {"aten::smooth_l1_loss", &loss_of_pair},
      {"aten::binary_cross_entropy_with_logits", &loss_of_logits},
      {"aten_recompute::binary_cross_entropy_with_logits_backward", &gradient_of_logits},
      {"aten::binary_cross_entropy", &loss_like_self},
      {"aten::binary_cross_entropy_backward", &like_self},
      {"aten::adaptive_avg_pool1d", &shapes::adaptive_pool},
      {"aten::adaptive_avg_pool2d", &shapes::adaptive_pool},
      {"aten::adaptive_avg_pool3d", &shapes::adaptive_pool},
      {"aten::_adaptive_avg_pool2d", &shapes::adaptive_pool},
      {"aten::_adaptive_avg_pool3d", &shapes::adaptive_pool},
      {"aten::_adaptive_avg_pool2d_backward", &like_self},
      {"aten::_adaptive_avg_pool3d_backward", &like_self},
      {"aten::pad", &shapes::padded},
      {"aten_recompute::pad_backward", &shapes::unpadded},
      {"aten_recompute::pad_backward_of_self", &like_self},
      {"aten_recompute::grid_sampler_backward", &shapes::sampler_gradients},
      {"aten::im2col", &shapes::unfolded},
      {"aten::col2im", &shapes::folded},
      {"aten::grid_sampler", &shapes::sampled},
      {"aten::grid_sampler_2d", &shapes::sampled},
      {"aten::grid_sampler_3d", &shapes::sampled},
  };
  return functions;
}

}  // namespace

ShapeFunction shape_function_of(const c10::FunctionSchema& schema) {
  const auto found = shape_functions().find(schema.name());
  if (found == shape_functions().end() || schema.is_mutable())
    return nullptr;
  return [&schema, describe = found->second](Stack& stack) {
    auto results = describe(Operands(schema, stack));
    if (results.empty())
      return false;
    stack = std::move(results);
    return true;
  };
}

}  // namespace aten_recompute
