// Size checks of normalisations; group_norm, composed of native_group_norm as in ATen; batch_norm
// from its statistics; and instance_norm, composed of batch_norm.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <tuple>

#include "rules/kernels/boxing.h"
#include "rules/kernels/layouts.h"
#include "rules/kernels/operators.h"

namespace aten_recompute {
namespace {

using at::Tensor;

// Returns `tensor` in the memory format that the kernels need: the CPU supports channels_last,
// other devices contiguous tensors only.
Tensor in_format_of_kernels(const Tensor& tensor, const Tensor& input) {
  return tensor.contiguous(input.device().is_cpu() ? input.suggest_memory_format()
                                                   : at::MemoryFormat::Contiguous);
}

std::optional<Tensor> contiguous(const std::optional<Tensor>& tensor) {
  if (!tensor || !tensor->defined())
    return std::nullopt;
  return tensor->contiguous();
}

int64_t positions(const Tensor& input) {
  return c10::multiply_integers(input.sizes().slice(2));
}

std::tuple<Tensor, Tensor, Tensor> group_norm(Tensor input, int64_t groups,
                                              std::optional<Tensor> weight,
                                              std::optional<Tensor> bias, double eps) {
  TORCH_CHECK(input.dim() >= 2, "Expected at least 2 dimensions for input tensor but received ",
              input.dim());
  return at::native_group_norm(in_format_of_kernels(input, input), contiguous(weight),
                               contiguous(bias), input.size(0), input.size(1), positions(input),
                               groups, eps);
}

std::tuple<Tensor, Tensor, Tensor> group_norm_backward(Tensor grad, Tensor input, Tensor mean,
                                                       Tensor rstd, std::optional<Tensor> weight,
                                                       int64_t groups, std::vector<bool> mask) {
  const auto rows = in_format_of_kernels(input, input);
  return at::native_group_norm_backward(
      in_format_of_kernels(grad, rows), rows, mean, rstd, contiguous(weight), input.size(0),
      input.size(1), positions(input), groups, std::array<bool, 3>{mask[0], mask[1], mask[2]});
}

// ---- size checks before normalisations (passes/frontend/size_checks.h) ----

// Returns whether the product of all sizes, without that of the channels, is 1.
bool has_one_value_per_channel(std::vector<int64_t> size) {
  TORCH_CHECK(!size.empty(), "list index out of range");
  size.erase(size.begin() + 1, size.begin() + std::min<int64_t>(2, std::ssize(size)));
  return c10::multiply_integers(size) == 1;
}

bool has_one_position(std::vector<int64_t> size) {
  size.erase(size.begin(), size.begin() + std::min<int64_t>(2, std::ssize(size)));
  return c10::multiply_integers(size) == 1;
}

// ---- batch_norm ----

bool is_packed(const Tensor& tensor) {
  return tensor.is_contiguous() || tensor.is_contiguous(at::MemoryFormat::ChannelsLast) ||
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d);
}

bool is_packed(const std::optional<Tensor>& tensor) {
  return !tensor || !tensor->defined() || tensor->is_contiguous();
}

// For an empty input, eager PyTorch returns the gradient times weight[0]. ATen's backward of that
// writes past the end of a list if the input has one dimension, so it is not called.
std::tuple<Tensor, Tensor, Tensor> batch_norm_backward(
    int64_t implementation, Tensor input, Tensor grad, std::optional<Tensor> weight,
    std::optional<Tensor> running_mean, std::optional<Tensor> running_var,
    std::optional<Tensor> mean, std::optional<Tensor> inverse, bool training, double eps,
    std::vector<bool> mask, Tensor reserve) {
  if (input.numel() > 0) {
    return at::_batch_norm_impl_index_backward(
        implementation, input, grad, weight, running_mean, running_var, mean, inverse, training,
        eps, std::array<bool, 3>{mask[0], mask[1], mask[2]}, reserve);
  }
  const bool scaled = weight && weight->defined();
  const auto zeros = mean ? at::zeros_like(*mean, grad.scalar_type()) : Tensor();
  return {scaled ? grad * (*weight)[0] : grad, zeros, zeros};
}

// With known statistics, batch norm is x * alpha + beta, where alpha = inverse * weight and beta =
// bias - mean * alpha. The kernel for evaluation computes this, too, with inverse = 1 /
// sqrt(variance + eps). It gets alpha as the weight, and a variance for which its inverse is 1. It
// then computes beta and the result with the same instructions, fused or not, as in training.
//
// The kernel is the same only if the parameters have the type in which it computes. bfloat16 has so
// few digits that mean * alpha is exact, fused or not; half is excluded.
Tensor transformed(const Tensor& input, const std::optional<Tensor>& weight,
                   const std::optional<Tensor>& bias, const Tensor& mean, const Tensor& inverse) {
  const auto type = at::toOpMathType(input.scalar_type());
  auto alpha = inverse.to(type);
  if (weight && weight->defined())
    alpha = alpha * weight->to(type);
  const auto offset =
      bias && bias->defined() ? std::optional<Tensor>(bias->to(type)) : std::nullopt;
  return std::get<0>(at::native_batch_norm(input, alpha, offset, mean.to(type),
                                           at::ones_like(alpha), /*training=*/false,
                                           /*momentum=*/0, /*eps=*/0));
}

// Returns the first output of _batch_norm_impl_index in training, given the other outputs, of which
// `implementation` is the last. Only ATen's own implementation, 0, is known to give the same bits,
// for layouts that have a single kernel.
Tensor batch_norm_from_statistics(Tensor input, std::optional<Tensor> weight,
                                  std::optional<Tensor> bias, Tensor mean, Tensor inverse,
                                  int64_t implementation, double eps, bool cudnn_enabled) {
  if (implementation == 0 && input.numel() > 0 && is_packed(weight) && is_packed(bias)) {
    if (input.is_cpu() && is_packed(input) && mean.scalar_type() != at::kHalf)
      return transformed(input, weight, bias, mean, inverse);
    if (input.is_cuda() && input.is_contiguous())
      return at::batch_norm_elemt(input, weight, bias, mean, inverse, eps);
  }
  return std::get<0>(at::_batch_norm_impl_index(input, weight, bias, /*running_mean=*/{},
                                                /*running_var=*/{}, /*training=*/true,
                                                /*momentum=*/0, eps, cudnn_enabled));
}

// ---- instance_norm ----

// Sets the statistics of each channel to the mean of those of its instances, as ATen does.
void write_mean(const Tensor& statistics, const Tensor& of_instances, int64_t batch) {
  statistics.copy_(of_instances.view({batch, -1}).mean(0, /*keepdim=*/false));
}

// Returns the running statistics for each instance. In evaluation, too, ATen writes their mean back
// to the running statistics, which may round them.
Tensor instance_statistics(Tensor statistics, int64_t batch) {
  auto of_instances = statistics.repeat(batch);
  write_mean(statistics, of_instances, batch);
  return of_instances;
}

// Normalises with statistics of the input, in which each channel is one instance: its sizes are [1,
// batch * channels, ...]. Updates the running statistics.
std::tuple<Tensor, Tensor, Tensor, Tensor, int64_t> instance_norm(
    Tensor input, std::optional<Tensor> weight, std::optional<Tensor> bias,
    std::optional<Tensor> running_mean, std::optional<Tensor> running_var, int64_t batch,
    double momentum, double eps, bool cudnn_enabled) {
  const auto of_instances = [&](const std::optional<Tensor>& statistics) {
    return statistics && statistics->defined() ? statistics->repeat(batch) : Tensor();
  };
  const auto means = of_instances(running_mean);
  const auto variances = of_instances(running_var);
  auto result = at::_batch_norm_impl_index(input, weight, bias, means, variances, /*training=*/true,
                                           momentum, eps, cudnn_enabled);
  if (means.defined())
    write_mean(*running_mean, means, batch);
  if (variances.defined())
    write_mean(*running_var, variances, batch);
  return result;
}

// ---- rms_norm (layer_norm.cpp) ----

// Returns the dimensions of an input that the mean of squares is taken over, the last one first.
// `weight_size` is empty without a weight.
std::vector<int64_t> normalized_dims(std::vector<int64_t> size,
                                     std::vector<int64_t> normalized_shape,
                                     std::vector<int64_t> weight_size) {
  const at::IntArrayRef shape(normalized_shape);
  TORCH_CHECK(!shape.empty() && shape.size() <= size.size() &&
                  at::IntArrayRef(size).slice(size.size() - shape.size()) == shape,
              "Given normalized_shape=", shape, ", expected input with shape [*, ", shape,
              "], but got input of size ", size);
  TORCH_CHECK(weight_size.empty() || weight_size == normalized_shape,
              "Expected weight to be of same shape as normalized_shape, but got weight of shape ",
              weight_size, " and normalized_shape = ", shape);
  std::vector<int64_t> dims;
  for (size_t i = 0; i < shape.size(); ++i)
    dims.push_back(std::ssize(size) - 1 - static_cast<int64_t>(i));
  return dims;
}

int64_t computed_type(int64_t dtype) {
  return static_cast<int64_t>(at::toOpMathType(static_cast<at::ScalarType>(dtype)));
}

double rms_norm_eps(std::optional<double> eps, int64_t dtype) {
  const auto type = static_cast<at::ScalarType>(dtype);
  if (type == at::kFloat || type == at::kComplexFloat)
    return static_cast<float>(eps.value_or(std::numeric_limits<float>::epsilon()));
  return eps.value_or(std::numeric_limits<double>::epsilon());
}

Tensor contiguous_unless_channels_last(Tensor self, std::vector<int64_t> size,
                                       std::vector<int64_t> stride) {
  return is_channels_last(size, stride) ? self : self.contiguous();
}

}  // namespace

void register_normalization_operators() {
  static const torch::jit::RegisterOperators registered({
      pure_operator("aten_recompute::has_one_value_per_channel(int[] size) -> bool",
                    &has_one_value_per_channel),
      pure_operator("aten_recompute::has_one_position(int[] size) -> bool", &has_one_position),
      pure_operator("aten_recompute::group_norm(Tensor input, int num_groups, Tensor? weight, "
                    "Tensor? bias, float eps) -> (Tensor, Tensor, Tensor)",
                    &group_norm),
      pure_operator("aten_recompute::group_norm_backward(Tensor grad, Tensor input, Tensor mean, "
                    "Tensor rstd, Tensor? weight, int num_groups, bool[] mask) "
                    "-> (Tensor, Tensor, Tensor)",
                    &group_norm_backward),
      pure_operator("aten_recompute::batch_norm_backward(int implementation, Tensor input, "
                    "Tensor grad, Tensor? weight, Tensor? running_mean, Tensor? running_var, "
                    "Tensor? mean, Tensor? inverse, bool training, float eps, bool[] mask, "
                    "Tensor reserve) -> (Tensor, Tensor, Tensor)",
                    &batch_norm_backward),
      pure_operator("aten_recompute::batch_norm_from_statistics(Tensor input, Tensor? weight, "
                    "Tensor? bias, Tensor mean, Tensor inverse, int implementation, float eps, "
                    "bool cudnn_enabled) -> Tensor",
                    &batch_norm_from_statistics),
      pure_operator("aten_recompute::normalized_dims(int[] size, int[] normalized_shape, "
                    "int[] weight_size) -> int[]",
                    &normalized_dims),
      pure_operator("aten_recompute::computed_type(int dtype) -> int", &computed_type),
      pure_operator("aten_recompute::rms_norm_eps(float? eps, int dtype) -> float", &rms_norm_eps),
      pure_operator("aten_recompute::contiguous_unless_channels_last(Tensor self, int[] size, "
                    "int[] stride) -> Tensor",
                    &contiguous_unless_channels_last),
      // These two update running statistics; ir/operator_facts.cpp says so.
      pure_operator("aten_recompute::instance_statistics(Tensor running, int batch) -> Tensor",
                    &instance_statistics),
      pure_operator("aten_recompute::instance_norm(Tensor input, Tensor? weight, Tensor? bias, "
                    "Tensor? running_mean, Tensor? running_var, int batch, float momentum, "
                    "float eps, bool cudnn_enabled) -> (Tensor, Tensor, Tensor, Tensor, int)",
                    &instance_norm),
  });
}

}  // namespace aten_recompute
