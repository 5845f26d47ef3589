// Size checks of normalizations; group_norm, composed of native_group_norm as in ATen; and
// instance_norm, composed of batch_norm.
#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <tuple>

#include "rules/kernels/batch_norm.h"
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

// ---- size checks before normalizations (passes/frontend/rewrites/size_checks.h) ----

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

// Normalizes with statistics of the input, in which each channel is one instance: its sizes are [1,
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
  auto result = aten_recompute::batch_norm(input, weight, bias, means, variances, /*training=*/true,
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
