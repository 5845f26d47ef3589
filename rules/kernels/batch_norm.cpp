#include "rules/kernels/batch_norm.h"

#include <ATen/ATen.h>
#include <ATen/OpMathType.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>

#include "common/log.h"
#include "rules/kernels/boxing.h"
#include "rules/kernels/operators.h"
#include "rules/kernels/parallel.h"
#include "rules/kernels/vector/batch_norm.h"

namespace aten_recompute {
namespace {

using at::Tensor;
using vector::BatchNormKernels;
using vector::Channels;
using vector::ImageSizes;
using vector::kMaxChannels;

using OptionalTensor = std::optional<Tensor>;
using Gradients = std::tuple<Tensor, Tensor, Tensor>;

template <typename T>
vector::Clamp<T> clamp_of(const Bounds& bounds) {
  constexpr auto kNone = std::numeric_limits<double>::quiet_NaN();
  return {static_cast<T>(bounds.lower.value_or(kNone)),
          static_cast<T>(bounds.upper.value_or(kNone))};
}

bool is_given(const OptionalTensor& tensor) {
  return tensor && tensor->defined();
}

template <typename T>
const T* data_of(const OptionalTensor& tensor) {
  return is_given(tensor) ? tensor->const_data_ptr<T>() : nullptr;
}

template <typename T>
T* mutable_data_of(const OptionalTensor& tensor) {
  return is_given(tensor) ? tensor->mutable_data_ptr<T>() : nullptr;
}

// ---- The clamp of ATen ----

Tensor clamped(Tensor result, const Bounds& bounds) {
  if (bounds.lower && bounds.upper)
    return at::hardtanh_(result, *bounds.lower, *bounds.upper);
  if (!bounds.any())
    return result;
  TORCH_INTERNAL_ASSERT(bounds.lower == 0.0 && !bounds.upper);
  return at::relu_(result);
}

// Returns the gradient in front of the clamp. It overwrites `result` if that has the layout which
// ATen gives the gradient.
Tensor unclamped_gradient(const Tensor& grad, Tensor result, const Bounds& bounds) {
  if (!bounds.any())
    return grad;
  const bool overwrites = result.strides() == grad.strides() &&
                          result.is_non_overlapping_and_dense() &&
                          result.scalar_type() == grad.scalar_type();
  auto gradient = overwrites ? result : at::empty({0}, grad.options());
  return bounds.upper
             ? at::hardtanh_backward_out(gradient, grad, result, *bounds.lower, *bounds.upper)
             : at::threshold_backward_out(gradient, grad, result, 0);
}

// ---- What the vector kernels compute with ----

ImageSizes sizes_of(const Tensor& input) {
  const auto samples = input.size(0);
  const auto channels = input.size(1);
  return {samples, channels, input.numel() / (samples * channels)};
}

// Calls function(channels) for all channels, in parallel. Sums of a channel do not depend on which
// others it is with.
template <typename Function>
void for_channels(const ImageSizes& sizes, const Function& function) {
  const auto each =
      std::clamp<int64_t>(sizes.channels / at::get_num_threads(), int64_t{1}, kMaxChannels);
  at::parallel_for(0, (sizes.channels + each - 1) / each, 1, [&](int64_t begin, int64_t end) {
    for (auto group = begin; group < end; ++group)
      function(Channels{group * each, std::min((group + 1) * each, sizes.channels)});
  });
}

// Values of a few channels.
template <typename T>
using PerChannel = std::array<T, kMaxChannels>;

template <typename T>
const T* from(const T* values, const Channels& channels) {
  return values == nullptr ? nullptr : values + channels.first;
}

// The mean and inverse deviation of evaluation, as the forward computes them.
template <typename T>
PerChannel<T> inverse_of_running(const T* variance, const Channels& channels, double eps) {
  PerChannel<T> inverse{};
  for (int64_t k = 0; k < channels.count(); ++k)
    inverse[k] = T(1) / std::sqrt(variance[channels.first + k] + static_cast<T>(eps));
  return inverse;
}

// Computes inverse deviations from sums of squares, and updates running statistics, in the types
// of ATen's batch_norm_cpu_update_stats_template.
template <typename T>
void finish_statistics(const T* mean, const PerChannel<T>& squares, const Channels& channels,
                       int64_t count, double momentum, double eps, T* inverse, T* running_mean,
                       T* running_var) {
  const auto part = static_cast<T>(momentum);
  for (int64_t k = 0; k < channels.count(); ++k) {
    const double variance = squares[k] / static_cast<T>(count);
    inverse[k] = variance != 0 || eps != 0 ? static_cast<T>(1.0 / std::sqrt(variance + eps)) : T(0);
    const auto c = channels.first + k;
    if (running_mean != nullptr)
      running_mean[c] = part * mean[k] + (1 - part) * running_mean[c];
    if (running_var != nullptr) {
      const double unbiased = squares[k] / static_cast<T>(count - 1);
      running_var[c] = static_cast<T>(part * unbiased + (1 - part) * running_var[c]);
    }
  }
}

template <typename T>
BatchNormOutputs forward_in_vectors(const BatchNormKernels<T>& kernels, const Tensor& input,
                                    const OptionalTensor& weight, const OptionalTensor& bias,
                                    const OptionalTensor& running_mean,
                                    const OptionalTensor& running_var, bool training,
                                    double momentum, double eps, const Bounds& bounds) {
  const auto sizes = sizes_of(input);
  auto result = at::empty_like(input, at::MemoryFormat::Contiguous);
  auto means = at::empty({training ? sizes.channels : 0}, input.options());
  auto inverses = at::empty_like(means);
  const auto* in = input.const_data_ptr<T>();
  auto* out = result.mutable_data_ptr<T>();
  auto* new_means = training ? mutable_data_of<T>(running_mean) : nullptr;
  auto* new_vars = training ? mutable_data_of<T>(running_var) : nullptr;
  auto* mean_data = means.mutable_data_ptr<T>();
  auto* inverse_data = inverses.mutable_data_ptr<T>();
  for_channels(sizes, [&](const Channels& channels) {
    PerChannel<T> scale, shift;
    const auto set_coefficients = [&](const T* mean, const T* inverse) {
      kernels.coefficients(channels, mean, inverse, from(data_of<T>(weight), channels),
                           from(data_of<T>(bias), channels), scale.data(), shift.data());
    };
    if (training) {
      auto* mean = mean_data + channels.first;
      auto* inverse = inverse_data + channels.first;
      PerChannel<T> squares;
      kernels.statistics(in, sizes, channels, mean, squares.data());
      finish_statistics(mean, squares, channels, sizes.samples * sizes.positions, momentum, eps,
                        inverse, new_means, new_vars);
      set_coefficients(mean, inverse);
    } else {
      const auto inverse = inverse_of_running(data_of<T>(running_var), channels, eps);
      set_coefficients(from(data_of<T>(running_mean), channels), inverse.data());
    }
    kernels.transform(in, sizes, channels, scale.data(), shift.data(), clamp_of<T>(bounds), out);
  });
  return {result, means, inverses, at::empty({0}, input.options().dtype(at::kByte)), 0};
}

// The operands of the clamp. The caller may change parameters and running statistics before the
// backward, so those that are no results of the forward are copies.
struct Seen {
  OptionalTensor weight, bias;
  OptionalTensor mean, var;  // running statistics, which evaluation reads
};

// Returns nullopt where ATen may treat a NaN in another way.
template <typename T>
std::optional<Gradients> backward_in_vectors(
    const BatchNormKernels<T>& kernels, const Tensor& input, const Tensor& grad,
    const OptionalTensor& weight, const OptionalTensor& running_mean,
    const OptionalTensor& running_var, const OptionalTensor& mean, const OptionalTensor& inverse,
    bool training, double eps, const std::array<bool, 3>& mask, const Bounds& bounds,
    const Seen& seen) {
  const auto sizes = sizes_of(input);
  Gradients gradients;
  // These are no structured bindings, because clang before version 16 captures none in lambdas.
  Tensor& grad_input = std::get<0>(gradients);
  Tensor& grad_weight = std::get<1>(gradients);
  Tensor& grad_bias = std::get<2>(gradients);
  if (mask[0])
    grad_input = at::empty_like(input, at::MemoryFormat::Contiguous);
  if (mask[1])
    grad_weight = at::empty_like(*weight, at::MemoryFormat::Contiguous);
  if (mask[2])
    grad_bias = at::empty({sizes.channels}, input.options());
  const auto* x = input.const_data_ptr<T>();
  const auto* dy = grad.const_data_ptr<T>();
  auto* dx = mask[0] ? grad_input.mutable_data_ptr<T>() : nullptr;
  const auto clamp = clamp_of<T>(bounds);
  std::atomic<bool> met_nan = false;
  for_channels(sizes, [&](const Channels& channels) {
    const auto* w = from(data_of<T>(weight), channels);
    PerChannel<T> inverses{}, scale{}, shift{};
    const T* means = from(data_of<T>(training ? mean : running_mean), channels);
    for (int64_t k = 0; k < channels.count(); ++k) {
      const auto c = channels.first + k;
      // ATen's forward and backward compute this in different types.
      inverses[k] = training ? data_of<T>(inverse)[c]
                             : static_cast<T>(1.0 / std::sqrt(data_of<T>(running_var)[c] + eps));
    }
    if (bounds.any()) {
      const auto of_forward =
          training ? inverses : inverse_of_running(data_of<T>(seen.var), channels, eps);
      kernels.coefficients(channels, training ? means : from(data_of<T>(seen.mean), channels),
                           of_forward.data(), from(data_of<T>(seen.weight), channels),
                           from(data_of<T>(seen.bias), channels), scale.data(), shift.data());
    }
    std::array<double, kMaxChannels> sum, dot;
    bool may_differ = false;
    if (training || mask[1] || mask[2])
      may_differ = kernels.sums(dy, x, sizes, channels, means, scale.data(), shift.data(), clamp,
                                sum.data(), dot.data());
    if (mask[0] && training) {
      kernels.gradient(dy, x, sizes, channels, means, inverses.data(), w, scale.data(),
                       shift.data(), clamp, sum.data(), dot.data(), dx);
    } else if (mask[0]) {
      may_differ = kernels.gradient_of_transform(dy, x, sizes, channels, inverses.data(), w,
                                                 scale.data(), shift.data(), clamp, dx) ||
                   may_differ;
    }
    if (may_differ)
      met_nan = true;
    for (int64_t k = 0; k < channels.count(); ++k) {
      const auto c = channels.first + k;
      if (mask[1])
        grad_weight.mutable_data_ptr<T>()[c] = static_cast<T>(dot[k] * inverses[k]);
      if (mask[2])
        grad_bias.mutable_data_ptr<T>()[c] = static_cast<T>(sum[k]);
    }
  });
  return met_nan ? std::nullopt : std::optional(std::move(gradients));
}

// ---- Which kernels run ----

BatchNormOutputs forward_of_aten(const Tensor& input, const OptionalTensor& weight,
                                 const OptionalTensor& bias, const OptionalTensor& running_mean,
                                 const OptionalTensor& running_var, bool training, double momentum,
                                 double eps, bool cudnn_enabled, const Bounds& bounds) {
  auto outputs = at::_batch_norm_impl_index(input, weight, bias, running_mean, running_var,
                                            training, momentum, eps, cudnn_enabled);
  std::get<0>(outputs) = clamped(std::get<0>(outputs), bounds);
  return outputs;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  if (a.sizes() != b.sizes() || a.scalar_type() != b.scalar_type())
    return false;
  // An empty tensor has no memory, and memcmp() takes no null pointer.
  return a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0;
}

// Returns numbers that do not repeat soon, without drawing any.
Tensor some_numbers(at::IntArrayRef sizes, double step, at::ScalarType type) {
  const auto count = c10::multiply_integers(sizes);
  return at::arange(count, at::kDouble).mul_(step).sin_().mul_(3).to(type).view(sizes);
}

template <typename T>
bool agrees_with_aten(const BatchNormKernels<T>& kernels, at::IntArrayRef sizes, bool training,
                      const Bounds& bounds) {
  constexpr double kEps = 1e-5;
  constexpr double kMomentum = 0.1;
  const auto type = c10::CppTypeToScalarType<T>::value;
  const auto input = some_numbers(sizes, 0.71, type);
  const auto grad = some_numbers(sizes, 1.37, type);
  const auto weight = some_numbers({sizes[1]}, 0.9, type);
  const auto bias = some_numbers({sizes[1]}, 0.4, type);
  const auto running_mean = some_numbers({sizes[1]}, 0.2, type);
  const auto running_var = at::square(some_numbers({sizes[1]}, 0.3, type));
  const auto mean_before = running_mean.clone();
  const auto var_before = running_var.clone();
  const auto expected = forward_of_aten(input, weight, bias, running_mean, running_var, training,
                                        kMomentum, kEps, /*cudnn_enabled=*/false, bounds);
  const auto outputs = forward_in_vectors(kernels, input, weight, bias, mean_before, var_before,
                                          training, kMomentum, kEps, bounds);
  const auto& [result, mean, inverse, reserve, implementation] = expected;
  if (!same_bits(result, std::get<0>(outputs)) || !same_bits(mean, std::get<1>(outputs)) ||
      !same_bits(inverse, std::get<2>(outputs)) || !same_bits(running_mean, mean_before) ||
      !same_bits(running_var, var_before))
    return false;
  constexpr std::array<bool, 3> kAll{true, true, true};
  const auto gradients = at::_batch_norm_impl_index_backward(
      implementation, input, unclamped_gradient(grad, result, bounds), weight, running_mean,
      running_var, mean, inverse, training, kEps, kAll, reserve);
  const auto own =
      backward_in_vectors(kernels, input, grad, weight, running_mean, running_var, mean, inverse,
                          training, kEps, kAll, bounds, {weight, bias, running_mean, running_var});
  return own && same_bits(std::get<0>(gradients), std::get<0>(*own)) &&
         same_bits(std::get<1>(gradients), std::get<1>(*own)) &&
         same_bits(std::get<2>(gradients), std::get<2>(*own));
}

// Which products and sums ATen fuses, and in which order it adds, depends on its compiler and on
// the processor. Therefore kernels are compared with ATen's; they are not assumed to be equal to
// them.
template <typename T>
bool agrees_with_aten(const BatchNormKernels<T>& kernels) {
  const at::NoGradGuard no_grad;
  for (const bool training : {true, false}) {
    for (const auto& bounds : {Bounds{}, Bounds{0.0, {}}, Bounds{0.0, 1.5}}) {
      // Images shorter than a vector, with a rest, and without one; more samples and channels than
      // are worked on together.
      for (const std::array<int64_t, 3> sizes :
           {std::array<int64_t, 3>{6, 11, 5}, {5, 3, 37}, {3, 9, 128}, {1, 2, 1001}}) {
        if (!agrees_with_aten(kernels, sizes, training, bounds))
          return false;
      }
    }
  }
  return true;
}

template <typename T>
const BatchNormKernels<T>* choose_kernels() {
#ifdef __x86_64__
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    const auto& kernels = vector::batch_norm_kernels<T>();
    if (agrees_with_aten(kernels))
      return &kernels;
  }
#endif
  log_info(LogTopic::kRules,
           std::string("batch norm of ") + c10::toString(c10::CppTypeToScalarType<T>::value) +
               " runs ATen's kernels: those of this library have other bits here");
  return nullptr;
}

// Returns nullptr if ATen's kernels have to run.
template <typename T>
const BatchNormKernels<T>* chosen_kernels() {
  static const auto* kernels = choose_kernels<T>();
  return kernels;
}

bool is_vector_of(const OptionalTensor& values, const Tensor& input) {
  return !is_given(values) ||
         (values->is_contiguous() && values->scalar_type() == input.scalar_type() &&
          values->device().is_cpu() && values->numel() == input.size(1));
}

// ATen has other kernels for images of one position, for other layouts, and for other types.
bool is_contiguous_image(const Tensor& tensor) {
  return tensor.layout() == at::kStrided && tensor.dim() >= 2 &&
         (tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble) &&
         tensor.is_contiguous() && tensor.suggest_memory_format() == at::MemoryFormat::Contiguous &&
         tensor.numel() > tensor.size(0) * tensor.size(1);
}

template <class... Parameters>
bool fits_vectors(const Tensor& input, const Parameters&... parameters) {
  return input.device().is_cpu() && is_contiguous_image(input) &&
         (is_vector_of(parameters, input) && ...);
}

// Calls function(kernels) with the kernels for the type of `input`. Returns whether there are any.
template <typename Function>
bool with_kernels(const Tensor& input, const Function& function) {
  if (input.scalar_type() == at::kFloat) {
    if (const auto* kernels = chosen_kernels<float>())
      return function(*kernels), true;
  } else if (const auto* kernels = chosen_kernels<double>()) {
    return function(*kernels), true;
  }
  return false;
}

}  // namespace

BatchNormOutputs batch_norm(const Tensor& input, const OptionalTensor& weight,
                            const OptionalTensor& bias, const OptionalTensor& running_mean,
                            const OptionalTensor& running_var, bool training, double momentum,
                            double eps, bool cudnn_enabled, Bounds bounds) {
  BatchNormOutputs outputs;
  const bool has_statistics = training || (is_given(running_mean) && is_given(running_var));
  if (has_statistics && fits_vectors(input, weight, bias, running_mean, running_var) &&
      with_kernels(input, [&](const auto& kernels) {
        outputs = forward_in_vectors(kernels, input, weight, bias, running_mean, running_var,
                                     training, momentum, eps, bounds);
      }))
    return outputs;
  return forward_of_aten(input, weight, bias, running_mean, running_var, training, momentum, eps,
                         cudnn_enabled, bounds);
}

bool choose_batch_norm_kernels() {
  const bool of_float = chosen_kernels<float>() != nullptr;
  const bool of_double = chosen_kernels<double>() != nullptr;
  return of_float || of_double;
}

bool has_batch_norm_kernels(const Tensor& input) {
  return is_contiguous_image(input) && with_kernels(input, [](const auto& /*kernels*/) {});
}

namespace {

BatchNormOutputs batch_norm_operator(Tensor input, OptionalTensor weight, OptionalTensor bias,
                                     OptionalTensor running_mean, OptionalTensor running_var,
                                     bool training, double momentum, double eps, bool cudnn_enabled,
                                     std::optional<double> lower, std::optional<double> upper) {
  return batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
                    cudnn_enabled, {lower, upper});
}

Tensor clamped_batch_norm(Tensor input, OptionalTensor weight, OptionalTensor bias,
                          OptionalTensor running_mean, OptionalTensor running_var, bool training,
                          double momentum, double eps, bool cudnn_enabled,
                          std::optional<double> lower, std::optional<double> upper) {
  return std::get<0>(batch_norm(input, weight, bias, running_mean, running_var, training, momentum,
                                eps, cudnn_enabled, {lower, upper}));
}

// ---- From statistics that were kept ----

bool is_packed(const Tensor& tensor) {
  return tensor.is_contiguous() || tensor.is_contiguous(at::MemoryFormat::ChannelsLast) ||
         tensor.is_contiguous(at::MemoryFormat::ChannelsLast3d);
}

bool is_packed(const OptionalTensor& tensor) {
  return !is_given(tensor) || tensor->is_contiguous();
}

// With known statistics, batch norm is x * alpha + beta, where alpha = inverse * weight and beta =
// bias - mean * alpha. The kernel for evaluation computes this, too, with inverse = 1 /
// sqrt(variance + eps). It gets alpha as the weight, and a variance for which its inverse is 1. It
// then computes beta and the result with the same instructions, fused or not, as in training.
//
// The kernel is the same only if the parameters have the type in which it computes. bfloat16 has so
// few digits that mean * alpha is exact, fused or not; half is excluded.
Tensor transformed(const Tensor& input, const OptionalTensor& weight, const OptionalTensor& bias,
                   const Tensor& mean, const Tensor& inverse, const Bounds& bounds) {
  const auto type = at::toOpMathType(input.scalar_type());
  auto alpha = inverse.to(type);
  if (is_given(weight))
    alpha = alpha * weight->to(type);
  const auto offset = is_given(bias) ? OptionalTensor(bias->to(type)) : std::nullopt;
  return std::get<0>(batch_norm(input, alpha, offset, mean.to(type), at::ones_like(alpha),
                                /*training=*/false, /*momentum=*/0, /*eps=*/0,
                                /*cudnn_enabled=*/false, bounds));
}

// Returns the first output of batch_norm in training, given the others, of which `implementation`
// is the last. Only ATen's own implementation, 0, is known to give the same bits, for layouts that
// have a single kernel.
Tensor batch_norm_from_statistics(Tensor input, OptionalTensor weight, OptionalTensor bias,
                                  Tensor mean, Tensor inverse, int64_t implementation, double eps,
                                  bool cudnn_enabled, std::optional<double> lower,
                                  std::optional<double> upper) {
  const Bounds bounds{lower, upper};
  if (implementation == 0 && input.numel() > 0 && is_packed(weight) && is_packed(bias)) {
    if (input.is_cpu() && is_packed(input) && mean.scalar_type() != at::kHalf)
      return transformed(input, weight, bias, mean, inverse, bounds);
    if (input.is_cuda() && input.is_contiguous())
      return clamped(at::batch_norm_elemt(input, weight, bias, mean, inverse, eps), bounds);
  }
  return std::get<0>(batch_norm(input, weight, bias, /*running_mean=*/{}, /*running_var=*/{},
                                /*training=*/true, /*momentum=*/0, eps, cudnn_enabled, bounds));
}

// ---- Gradients ----

// The result of the forward, for a gradient that the vector kernels do not compute.
Tensor result_again(const Tensor& input, const OptionalTensor& mean, const OptionalTensor& inverse,
                    int64_t implementation, bool training, double eps, const Bounds& bounds,
                    const Seen& seen) {
  constexpr bool kCudnnEnabled = true;
  if (training)
    return batch_norm_from_statistics(input, seen.weight, seen.bias, *mean, *inverse,
                                      implementation, eps, kCudnnEnabled, bounds.lower,
                                      bounds.upper);
  return std::get<0>(batch_norm(input, seen.weight, seen.bias, seen.mean, seen.var, training,
                                /*momentum=*/0, eps, kCudnnEnabled, bounds));
}

// For an empty input, eager PyTorch returns the gradient times weight[0]. ATen's backward of that
// writes past the end of a list if the input has one dimension, so it is not called.
Gradients gradient_of_nothing(const Tensor& grad, const OptionalTensor& weight,
                              const OptionalTensor& mean) {
  const auto zeros = mean ? at::zeros_like(*mean, grad.scalar_type()) : Tensor();
  return {is_given(weight) ? grad * (*weight)[0] : grad, zeros, zeros};
}

// As in eager PyTorch, the gradient in evaluation reads the running statistics of the time at which
// it is computed. Only the clamp was computed by the forward, whose result eager has kept: it reads
// what the forward has seen.
Gradients batch_norm_backward(int64_t implementation, Tensor input, Tensor grad,
                              OptionalTensor weight, OptionalTensor running_mean,
                              OptionalTensor running_var, OptionalTensor mean,
                              OptionalTensor inverse, bool training, double eps,
                              std::vector<bool> needs, Tensor reserve, std::optional<double> lower,
                              std::optional<double> upper, OptionalTensor seen_weight,
                              OptionalTensor seen_bias, OptionalTensor seen_mean,
                              OptionalTensor seen_var) {
  if (input.numel() == 0)
    return gradient_of_nothing(grad, weight, mean);
  const Bounds bounds{lower, upper};
  const Seen seen{seen_weight, seen_bias, seen_mean, seen_var};
  const std::array<bool, 3> mask{needs[0], needs[1], needs[2]};
  std::optional<Gradients> gradients;
  const bool fits = implementation == 0 && grad.sizes() == input.sizes() &&
                    grad.scalar_type() == input.scalar_type() && is_contiguous_image(grad) &&
                    (is_given(weight) || !mask[1]) &&
                    fits_vectors(input, weight, running_mean, running_var, seen.weight, seen.bias,
                                 seen.mean, seen.var) &&
                    (training ? fits_vectors(input, mean, inverse)  // empty in evaluation
                              : is_given(running_mean) && is_given(running_var));
  if (fits &&
      with_kernels(input,
                   [&](const auto& kernels) {
                     gradients = backward_in_vectors(kernels, input, grad, weight, running_mean,
                                                     running_var, mean, inverse, training, eps,
                                                     mask, bounds, seen);
                   }) &&
      gradients)
    return *std::move(gradients);
  if (bounds.any()) {
    grad = unclamped_gradient(
        grad, result_again(input, mean, inverse, implementation, training, eps, bounds, seen),
        bounds);
  }
  return at::_batch_norm_impl_index_backward(implementation, input, grad, weight, running_mean,
                                             running_var, mean, inverse, training, eps, mask,
                                             reserve);
}

// A copy of what the caller may change before the backward, without that a version counter tells of
// it: running statistics are written through pointers.
Tensor snapshot(Tensor self) {
  return self.clone();
}

bool is_same(const OptionalTensor& a, const OptionalTensor& b) {
  return !is_given(a) || !is_given(b) || at::equal(*a, *b);
}

// A batch norm in evaluation that runs again under ordinary autograd. Its result is that of the
// first run, and its gradients are eager's, which read running statistics as they are now.
Tensor batch_norm_as_seen(Tensor input, OptionalTensor weight, OptionalTensor bias,
                          OptionalTensor running_mean, OptionalTensor running_var,
                          OptionalTensor seen_mean, OptionalTensor seen_var, double momentum,
                          double eps, bool cudnn_enabled) {
  auto result = at::batch_norm(input, weight, bias, running_mean, running_var,
                               /*training=*/false, momentum, eps, cudnn_enabled);
  if (is_same(running_mean, seen_mean) && is_same(running_var, seen_var))
    return result;
  const auto seen = [&] {
    const at::NoGradGuard no_grad;
    return at::batch_norm(input, weight, bias, seen_mean, seen_var, /*training=*/false, momentum,
                          eps, cudnn_enabled);
  }();
  return result + (seen - result.detach());
}

}  // namespace

void register_batch_norm_operators() {
  static const torch::jit::RegisterOperators registered({
      // These two update running statistics; ir/operator_facts.cpp says so.
      pure_operator("aten_recompute::batch_norm(Tensor input, Tensor? weight, Tensor? bias, "
                    "Tensor? running_mean, Tensor? running_var, bool training, float momentum, "
                    "float eps, bool cudnn_enabled, float? lower=None, float? upper=None) "
                    "-> (Tensor, Tensor, Tensor, Tensor, int)",
                    &batch_norm_operator),
      pure_operator("aten_recompute::clamped_batch_norm(Tensor input, Tensor? weight, "
                    "Tensor? bias, Tensor? running_mean, Tensor? running_var, bool training, "
                    "float momentum, float eps, bool cudnn_enabled, float? lower, float? upper) "
                    "-> Tensor",
                    &clamped_batch_norm),
      pure_operator("aten_recompute::batch_norm_from_statistics(Tensor input, Tensor? weight, "
                    "Tensor? bias, Tensor mean, Tensor inverse, int implementation, float eps, "
                    "bool cudnn_enabled, float? lower=None, float? upper=None) -> Tensor",
                    &batch_norm_from_statistics),
      pure_operator("aten_recompute::batch_norm_backward(int implementation, Tensor input, "
                    "Tensor grad, Tensor? weight, Tensor? running_mean, Tensor? running_var, "
                    "Tensor? mean, Tensor? inverse, bool training, float eps, bool[] mask, "
                    "Tensor reserve, float? lower=None, float? upper=None, "
                    "Tensor? seen_weight=None, Tensor? seen_bias=None, Tensor? seen_mean=None, "
                    "Tensor? seen_var=None) -> (Tensor, Tensor, Tensor)",
                    &batch_norm_backward),
      pure_operator("aten_recompute::batch_norm_as_seen(Tensor input, Tensor? weight, "
                    "Tensor? bias, Tensor? running_mean, Tensor? running_var, Tensor? seen_mean, "
                    "Tensor? seen_var, float momentum, float eps, bool cudnn_enabled) -> Tensor",
                    &batch_norm_as_seen),
      pure_operator("aten_recompute::snapshot(Tensor self) -> Tensor", &snapshot),
  });
}

}  // namespace aten_recompute
