// Batch norm, with or without a clamp after it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

namespace aten_recompute {

// The bounds of the clamp: (0, none) is relu, both are hardtanh.
struct Bounds {
  std::optional<double> lower;
  std::optional<double> upper;

  bool any() const { return lower || upper; }
};

// The outputs of at::_batch_norm_impl_index: result, mean, inverse deviation, reserve, index of the
// implementation.
using BatchNormOutputs = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, int64_t>;

// Returns what at::_batch_norm_impl_index returns for these arguments, with its first output
// clamped, bit for bit. Updates the running statistics in training. Contiguous images of float and
// double on the CPU go through rules/kernels/vector, which reads them fewer times than ATen does.
BatchNormOutputs batch_norm(const at::Tensor& input, const std::optional<at::Tensor>& weight,
                            const std::optional<at::Tensor>& bias,
                            const std::optional<at::Tensor>& running_mean,
                            const std::optional<at::Tensor>& running_var, bool training,
                            double momentum, double eps, bool cudnn_enabled, Bounds bounds = {});

// Runs ATen's batch norm and the kernels of rules/kernels/vector on a few values, once per process,
// to see whether these have the same bits, so that no later call has to. Returns whether they have,
// for float or for double. Thread-safe.
bool choose_batch_norm_kernels();

// Returns whether kernels of this library compute the batch norm of tensors like `input` on the
// CPU; `input` itself may be a meta tensor. Where they do not, ATen's kernel of the backward
// allocates the gradient of the input twice.
bool has_batch_norm_kernels(const at::Tensor& input);

}  // namespace aten_recompute
