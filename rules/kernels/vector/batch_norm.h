// Batch norm followed by a clamp, channel by channel, in vector instructions and with the bits of
// ATen's kernels (aten/src/ATen/native/cpu/batch_norm_kernel.cpp).
//
// batch_norm.cpp is compiled for processors with AVX2 and includes no library's header: an inline
// function of it, compiled so, could become the one that the whole program uses.
#pragma once

#include <cstdint>

namespace aten_recompute::vector {

// A contiguous tensor [samples, channels, positions]; `positions` is the product of all further
// dimensions.
struct ImageSizes {
  int64_t samples;
  int64_t channels;
  int64_t positions;
};

// A range of channels. Pointers to a value per channel point to that of channel `first`.
struct Channels {
  int64_t first;
  int64_t last;  // not one of them

  int64_t count() const { return last - first; }
};

// The largest number of channels that one call may get.
inline constexpr int64_t kMaxChannels = 8;

// The bounds of a clamp, which keeps what is between them. A bound that is NaN does not exist.
template <typename T>
struct Clamp {
  T lower;
  T upper;
};

template <typename T>
struct BatchNormKernels {
  // Computes the mean of each channel, and the sum of the squares of distances from it.
  void (*statistics)(const T* input, const ImageSizes& sizes, Channels channels, T* mean,
                     T* squares);
  // Computes the factor and the summand of each channel, so that its result is input * scale +
  // shift. `weight` and `bias` may be nullptr.
  void (*coefficients)(Channels channels, const T* mean, const T* inverse, const T* weight,
                       const T* bias, T* scale, T* shift);
  // Computes clamp(input * scale + shift). `result` may be `input`.
  void (*transform)(const T* input, const ImageSizes& sizes, Channels channels, const T* scale,
                    const T* shift, Clamp<T> clamp, T* result);
  // For the gradient of the result where it was not clamped, else 0, computes the sum over each
  // channel, and the dot product with the distances of the input from the mean. Returns whether
  // ATen may treat a NaN in another way: its hardtanh_backward lets the gradient of NaN pass in
  // the elements that fill no vector, and not in others.
  bool (*sums)(const T* grad, const T* input, const ImageSizes& sizes, Channels channels,
               const T* mean, const T* scale, const T* shift, Clamp<T> clamp, double* sum,
               double* dot);
  // Computes the gradient of the input in training. `result` may be `grad`.
  void (*gradient)(const T* grad, const T* input, const ImageSizes& sizes, Channels channels,
                   const T* mean, const T* inverse, const T* weight, const T* scale, const T* shift,
                   Clamp<T> clamp, const double* sum, const double* dot, T* result);
  // Computes the gradient of the input where the statistics do not depend on it. Returns the same
  // as sums().
  bool (*gradient_of_transform)(const T* grad, const T* input, const ImageSizes& sizes,
                                Channels channels, const T* inverse, const T* weight,
                                const T* scale, const T* shift, Clamp<T> clamp, T* result);
};

#ifdef __x86_64__
// Returns the kernels for float or double, which need a processor with AVX2 and FMA.
template <typename T>
const BatchNormKernels<T>& batch_norm_kernels();
template <>
const BatchNormKernels<float>& batch_norm_kernels<float>();
template <>
const BatchNormKernels<double>& batch_norm_kernels<double>();
#endif

}  // namespace aten_recompute::vector
