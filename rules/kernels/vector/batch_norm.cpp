// Compiled for AVX2, which ATen's kernels of batch norm use even where there is AVX-512.
//
// Sums have the order of ATen's kernels. A sum of a channel in double is one chain of additions
// there, so eight channels are added side by side, one in each lane; for that, blocks of 8 by 8
// elements are transposed. Sums in float or double of vectors have one vector per image there, so
// several images are added side by side.
//
// The compiler may not fuse a product and a sum here (-ffp-contract=off): fused() stands where it
// does so in ATen's kernels.
#include "rules/kernels/vector/batch_norm.h"

#include <immintrin.h>

namespace aten_recompute::vector {
namespace {

constexpr int64_t kVectorBytes = 32;

template <typename T, int64_t kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};

template <typename T>
using Vector = typename VectorOf<T, kVectorBytes>::Type;
template <typename T>
constexpr int64_t kLanes = kVectorBytes / static_cast<int64_t>(sizeof(T));

// Eight elements, whatever the size of a register is.
template <typename T>
using Eight = typename VectorOf<T, 8 * sizeof(T)>::Type;

template <typename V, typename T>
inline V load(const T* from) {
  V result;
  __builtin_memcpy(&result, from, sizeof(V));
  return result;
}

template <typename V, typename T>
inline void store(const V& vector, T* to) {
  __builtin_memcpy(to, &vector, sizeof(V));
}

// Returns a * b + c, rounded once.
inline float fused(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline double fused(double a, double b, double c) {
  return __builtin_fma(a, b, c);
}
inline Vector<float> fused(const Vector<float>& a, const Vector<float>& b, const Vector<float>& c) {
  return _mm256_fmadd_ps(a, b, c);
}
inline Vector<double> fused(const Vector<double>& a, const Vector<double>& b,
                            const Vector<double>& c) {
  return _mm256_fmadd_pd(a, b, c);
}

// Loads `count` elements, fewer than a vector has, and zeros.
template <typename T>
inline Vector<T> load_part(const T* from, int64_t count) {
  Vector<T> result = {};
  for (int64_t i = 0; i < kLanes<T>; ++i)
    result[i] = i < count ? from[i] : T(0);
  return result;
}

template <typename T>
inline void store_part(const Vector<T>& vector, T* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    to[i] = vector[i];
}

// ---- Statistics ----

template <typename T>
inline void transpose(Eight<T> (&rows)[8]) {
  Eight<T> pairs[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = __builtin_shufflevector(rows[i], rows[i + 1], 0, 8, 2, 10, 4, 12, 6, 14);
    pairs[i + 1] = __builtin_shufflevector(rows[i], rows[i + 1], 1, 9, 3, 11, 5, 13, 7, 15);
  }
  Eight<T> fours[8];
  for (int i = 0; i < 8; i += 4) {
    for (int k = 0; k < 2; ++k) {
      fours[i + k] =
          __builtin_shufflevector(pairs[i + k], pairs[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      fours[i + k + 2] =
          __builtin_shufflevector(pairs[i + k], pairs[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  }
  for (int i = 0; i < 4; ++i) {
    rows[i] = __builtin_shufflevector(fours[i], fours[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    rows[i + 4] = __builtin_shufflevector(fours[i], fours[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
  }
}

// Adds up the elements of each channel in their order: calls add(sum, element), and for the last
// element of an image of odd size add_last(sum, element), for eight channels.
template <typename T, typename Add, typename AddLast>
inline Eight<double> sums_in_order(const T* input, const ImageSizes& sizes, Channels channels,
                                   const Add& add, const AddLast& add_last) {
  Eight<double> sum = {};
  for (int64_t n = 0; n < sizes.samples; ++n) {
    const T* rows[8];
    for (int64_t k = 0; k < 8; ++k) {
      // Lanes without a channel repeat the last one.
      const int64_t channel = k < channels.count() ? channels.first + k : channels.last - 1;
      rows[k] = input + (n * sizes.channels + channel) * sizes.positions;
    }
    int64_t i = 0;
    for (; i + 8 <= sizes.positions; i += 8) {
      Eight<T> block[8];
      for (int k = 0; k < 8; ++k)
        block[k] = load<Eight<T>>(rows[k] + i);
      transpose<T>(block);
      for (int k = 0; k < 8; ++k)
        add(sum, block[k]);
    }
    for (; i < sizes.positions; ++i) {
      Eight<T> element;
      for (int k = 0; k < 8; ++k)
        element[k] = rows[k][i];
      if (i + 1 == sizes.positions && sizes.positions % 2 == 1)
        add_last(sum, element);
      else
        add(sum, element);
    }
  }
  return sum;
}

template <typename T>
inline void add_converted(Eight<double>& sum, const Eight<T>& element) {
  sum += __builtin_convertvector(element, Eight<double>);
}

// The compiler of ATen's kernel computes the squares of two or more elements together, in vectors.
// It adds that of a single last one with a fused instruction, where it is in double already.
inline void add_last_square(Eight<double>& sum, const Eight<float>& distance) {
  add_converted<float>(sum, distance * distance);
}
inline void add_last_square(Eight<double>& sum, const Eight<double>& distance) {
  for (int k = 0; k < 8; ++k)
    sum[k] = fused(distance[k], distance[k], sum[k]);
}

template <typename T>
void statistics(const T* input, const ImageSizes& sizes, Channels channels, T* mean, T* squares) {
  const auto count = sizes.samples * sizes.positions;
  const auto sum = sums_in_order(input, sizes, channels, &add_converted<T>, &add_converted<T>);
  Eight<T> center = {};
  for (int64_t k = 0; k < 8; ++k)
    center[k] = static_cast<T>(sum[k] / static_cast<double>(count));
  const auto square = sums_in_order(
      input, sizes, channels,
      [&](Eight<double>& squares_so_far, const Eight<T>& element) {
        const auto distance = element - center;
        add_converted<T>(squares_so_far, distance * distance);
      },
      [&](Eight<double>& squares_so_far, const Eight<T>& element) {
        add_last_square(squares_so_far, element - center);
      });
  for (int64_t k = 0; k < channels.count(); ++k) {
    mean[k] = center[k];
    squares[k] = static_cast<T>(square[k]);
  }
}

template <typename T>
void coefficients(Channels channels, const T* mean, const T* inverse, const T* weight,
                  const T* bias, T* scale, T* shift) {
  for (int64_t k = 0; k < channels.count(); ++k) {
    const T factor = inverse[k] * (weight == nullptr ? T(1) : weight[k]);
    scale[k] = factor;
    shift[k] = fused(-mean[k], factor, bias == nullptr ? T(0) : bias[k]);
  }
}

// ---- The clamp ----

template <typename T>
struct Transform {
  Transform(T scale, T shift, Clamp<T> clamp)
      : scale(Vector<T>{} + scale),
        shift(Vector<T>{} + shift),
        lower(Vector<T>{} + clamp.lower),
        upper(Vector<T>{} + clamp.upper) {}

  Vector<T> before_clamp(const Vector<T>& x) const { return fused(x, scale, shift); }

  Vector<T> operator()(const Vector<T>& x) const {
    auto y = before_clamp(x);
    y = lower > y ? lower : y;
    return upper < y ? upper : y;
  }

  // Returns the gradient where the result was not clamped, else 0. NaN passes, as it does in ATen
  // if there is no upper bound (relu). With one (hardtanh), it passes there for some elements of a
  // tensor only, so it is noted.
  Vector<T> pass(const Vector<T>& grad, const Vector<T>& x) {
    const auto y = before_clamp(x);
    nan |= y != y;
    return ((y <= lower) | (y >= upper)) ? Vector<T>{} : grad;
  }

  // Returns whether pass() met a NaN that ATen may treat in another way.
  bool met_nan() const {
    bool met = false;
    for (int64_t i = 0; i < kLanes<T>; ++i)
      met = met || nan[i] != 0;
    return met && upper[0] == upper[0];
  }

  Vector<T> scale, shift, lower, upper;
  decltype(Vector<T>{} != Vector<T>{}) nan = {};
};

template <typename T>
bool clamps(Clamp<T> clamp) {
  return clamp.lower == clamp.lower || clamp.upper == clamp.upper;
}

// Calls function(index of the first element, number of elements) for each vector of each channel,
// and for the rest of each image. `function` is told at compile time whether it gets a whole
// vector.
struct Whole {};
struct Part {
  int64_t count;
};

template <typename T, typename Function>
inline void for_each_vector(const ImageSizes& sizes, int64_t channel, const Function& function) {
  for (int64_t n = 0; n < sizes.samples; ++n) {
    const auto begin = (n * sizes.channels + channel) * sizes.positions;
    int64_t i = 0;
    for (; i + kLanes<T> <= sizes.positions; i += kLanes<T>)
      function(begin + i, Whole{});
    if (i < sizes.positions)
      function(begin + i, Part{sizes.positions - i});
  }
}

template <typename T>
inline Vector<T> load(const T* from, Whole) {
  return load<Vector<T>>(from);
}
template <typename T>
inline Vector<T> load(const T* from, Part part) {
  return load_part(from, part.count);
}
template <typename T>
inline void store(const Vector<T>& vector, T* to, Whole) {
  store(vector, to);
}
template <typename T>
inline void store(const Vector<T>& vector, T* to, Part part) {
  store_part(vector, to, part.count);
}

template <typename T>
void transform(const T* input, const ImageSizes& sizes, Channels channels, const T* scale,
               const T* shift, Clamp<T> clamp, T* result) {
  for (int64_t k = 0; k < channels.count(); ++k) {
    const Transform<T> transformed(scale[k], shift[k], clamp);
    const auto channel = channels.first + k;
    if (clamps(clamp)) {
      for_each_vector<T>(sizes, channel, [&](int64_t i, auto part) {
        store<T>(transformed(load<T>(input + i, part)), result + i, part);
      });
    } else {
      for_each_vector<T>(sizes, channel, [&](int64_t i, auto part) {
        store<T>(transformed.before_clamp(load<T>(input + i, part)), result + i, part);
      });
    }
  }
}

// ---- Gradients ----

// The sum of the first `count` lanes in the order of at::vec::vec_reduce_all.
template <typename T>
inline T sum_of_lanes(const Vector<T>& vector, int64_t count) {
  T sum = vector[0];
  for (int64_t i = 1; i < count; ++i)
    sum += vector[i];
  return sum;
}

template <typename T>
inline T sum_of_lanes(const Vector<T>& vector) {
  return sum_of_lanes<T>(vector, kLanes<T>);
}

// ATen adds the two halves of a vector of floats until one element is left.
template <>
inline float sum_of_lanes<float>(const Vector<float>& vector) {
  auto v = vector;
  v += __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3);
  v += __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
  v += __builtin_shufflevector(v, v, 1, 0, 3, 2, 5, 4, 7, 6);
  return v[0];
}

// Adds, for kImages images of a channel, the gradient, and its product with the distances from the
// mean.
template <int kImages, bool kClamps, typename T>
inline void add_images(const T* grad, const T* input, int64_t stride, int64_t positions, T mean,
                       Transform<T>& transformed, double& sum, double& dot) {
  const auto center = Vector<T>{} + mean;
  Vector<T> sums[kImages] = {};
  Vector<T> dots[kImages] = {};
  const auto passed = [&](const Vector<T>& dy, const Vector<T>& x) {
    return kClamps ? transformed.pass(dy, x) : dy;
  };
  int64_t i = 0;
  if (positions >= kLanes<T>) {
    for (int n = 0; n < kImages; ++n) {
      const auto x = load<Vector<T>>(input + n * stride);
      sums[n] = passed(load<Vector<T>>(grad + n * stride), x);
      dots[n] = (x - center) * sums[n];
    }
    for (i = kLanes<T>; i + kLanes<T> <= positions; i += kLanes<T>) {
      for (int n = 0; n < kImages; ++n) {
        const auto x = load<Vector<T>>(input + n * stride + i);
        const auto dy = passed(load<Vector<T>>(grad + n * stride + i), x);
        sums[n] += dy;
        dots[n] += (x - center) * dy;
      }
    }
  }
  const auto rest = positions - i;
  for (int n = 0; n < kImages; ++n) {
    if (rest > 0) {
      const auto x = load_part(input + n * stride + i, rest);
      const auto dy = passed(load_part(grad + n * stride + i, rest), x);
      const auto more_sums = i == 0 ? dy : sums[n] + dy;
      const auto more_dots = i == 0 ? (x - center) * dy : fused(x - center, dy, dots[n]);
      for (int64_t k = 0; k < rest; ++k) {
        sums[n][k] = more_sums[k];
        dots[n][k] = more_dots[k];
      }
    }
    sum += i == 0 ? sum_of_lanes<T>(sums[n], rest) : sum_of_lanes<T>(sums[n]);
    dot += i == 0 ? sum_of_lanes<T>(dots[n], rest) : sum_of_lanes<T>(dots[n]);
  }
}

template <bool kClamps, typename T>
void sums_of_channel(const T* grad, const T* input, const ImageSizes& sizes, T mean,
                     Transform<T>& transformed, double& sum, double& dot) {
  const auto stride = sizes.channels * sizes.positions;
  int64_t n = 0;
  sum = 0;
  dot = 0;
  for (; n + 4 <= sizes.samples; n += 4)
    add_images<4, kClamps>(grad + n * stride, input + n * stride, stride, sizes.positions, mean,
                           transformed, sum, dot);
  for (; n < sizes.samples; ++n)
    add_images<1, kClamps>(grad + n * stride, input + n * stride, stride, sizes.positions, mean,
                           transformed, sum, dot);
}

template <typename T>
bool sums(const T* grad, const T* input, const ImageSizes& sizes, Channels channels, const T* mean,
          const T* scale, const T* shift, Clamp<T> clamp, double* sum, double* dot) {
  bool met_nan = false;
  for (int64_t k = 0; k < channels.count(); ++k) {
    const auto start = (channels.first + k) * sizes.positions;
    Transform<T> transformed(scale[k], shift[k], clamp);
    const auto add = clamps(clamp) ? &sums_of_channel<true, T> : &sums_of_channel<false, T>;
    add(grad + start, input + start, sizes, mean[k], transformed, sum[k], dot[k]);
    met_nan = met_nan || transformed.met_nan();
  }
  return met_nan;
}

template <typename T>
void gradient(const T* grad, const T* input, const ImageSizes& sizes, Channels channels,
              const T* mean, const T* inverse, const T* weight, const T* scale, const T* shift,
              Clamp<T> clamp, const double* sum, const double* dot, T* result) {
  const auto count = sizes.samples * sizes.positions;
  for (int64_t k = 0; k < channels.count(); ++k) {
    Transform<T> transformed(scale[k], shift[k], clamp);
    const auto zero = Vector<T>{};
    const auto center = zero + mean[k];
    const auto slope =
        zero + static_cast<T>(dot[k]) * inverse[k] * inverse[k] / static_cast<T>(count);
    const auto grad_mean = zero + static_cast<T>(sum[k] / static_cast<double>(count));
    const auto factor = zero + inverse[k];
    const auto w = zero + (weight == nullptr ? T(1) : weight[k]);
    const auto channel = channels.first + k;
    const auto run = [&](const auto& passed) {
      for_each_vector<T>(sizes, channel, [&](int64_t i, auto part) {
        const auto x = load<T>(input + i, part);
        const auto dy = passed(load<T>(grad + i, part), x);
        const auto distance = fused(center - x, slope, dy - grad_mean);
        store<T>(distance * factor * w, result + i, part);
      });
    };
    if (clamps(clamp))
      run([&](const Vector<T>& dy, const Vector<T>& x) { return transformed.pass(dy, x); });
    else
      run([&](const Vector<T>& dy, const Vector<T>&) { return dy; });
  }
}

template <typename T>
bool gradient_of_transform(const T* grad, const T* input, const ImageSizes& sizes,
                           Channels channels, const T* inverse, const T* weight, const T* scale,
                           const T* shift, Clamp<T> clamp, T* result) {
  bool met_nan = false;
  for (int64_t k = 0; k < channels.count(); ++k) {
    Transform<T> transformed(scale[k], shift[k], clamp);
    const auto factor = Vector<T>{} + inverse[k];
    const auto w = Vector<T>{} + (weight == nullptr ? T(1) : weight[k]);
    for_each_vector<T>(sizes, channels.first + k, [&](int64_t i, auto part) {
      auto dy = load<T>(grad + i, part);
      if (clamps(clamp))
        dy = transformed.pass(dy, load<T>(input + i, part));
      store<T>(dy * factor * w, result + i, part);
    });
    met_nan = met_nan || transformed.met_nan();
  }
  return met_nan;
}

template <typename T>
constexpr BatchNormKernels<T> kKernels = {&statistics<T>, &coefficients<T>,
                                          &transform<T>,  &sums<T>,
                                          &gradient<T>,   &gradient_of_transform<T>};

}  // namespace

template <>
const BatchNormKernels<float>& batch_norm_kernels<float>() {
  return kKernels<float>;
}
template <>
const BatchNormKernels<double>& batch_norm_kernels<double>() {
  return kKernels<double>;
}

}  // namespace aten_recompute::vector
