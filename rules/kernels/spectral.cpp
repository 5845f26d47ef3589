// Gradients of Fourier transforms (torch.fft), by the kernels that eager PyTorch's autograd runs,
// and of parts of complex numbers.
//
// ATen resizes the operand along the transformed dimensions, makes it complex where the transform
// needs that, and runs one of three kernels: complex to complex, real to complex, complex to real
// (SpectralOps.cpp). The gradient goes the same way back. All are linear: neither reads the
// operand.
#include <ATen/Functions.h>
#include <ATen/WrapDimUtils.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "rules/kernels/boxing.h"
#include "rules/kernels/operators.h"

namespace aten_recompute {
namespace {

using Sizes = std::vector<int64_t>;

enum class Kind { kComplex, kRealToFull, kRealToHalf, kHalfToReal };

// A transform, for an operand of given sizes.
struct Transform {
  Kind kind = Kind::kComplex;
  bool is_forward = true;
  int64_t norm = 0;        // as kernels take it: 0 divides by nothing, 1 by the root of n, 2 by n
  Sizes dims;              // in the order in which they were given
  Sizes resized;           // per dimension of `dims`: the size that the kernel gets
  int64_t real_size = 0;   // of the last of `dims`, on the side of real numbers
  bool is_complex = true;  // the operand, before it is made complex
};

// `name` is that in torch.fft: [i][r]fft[2|n].
Transform describe(const std::string& name, const Sizes& sizes, int64_t dtype,
                   const std::optional<Sizes>& s, const std::optional<Sizes>& dim,
                   const std::optional<std::string>& norm) {
  Transform transform;
  transform.is_complex = at::isComplexType(static_cast<at::ScalarType>(dtype));
  transform.is_forward = name[0] != 'i';
  const bool is_of_real = name.find('r') != std::string::npos;
  if (is_of_real)
    transform.kind = transform.is_forward ? Kind::kRealToHalf : Kind::kHalfToReal;
  else if (name.back() == 't' && !transform.is_complex)
    transform.kind = Kind::kRealToFull;
  const auto rank = static_cast<int64_t>(sizes.size());
  if (dim) {
    transform.dims = *dim;
    at::maybe_wrap_dims(transform.dims, rank);
  } else {
    transform.dims.resize(s ? s->size() : sizes.size());
    std::iota(transform.dims.begin(), transform.dims.end(),
              rank - static_cast<int64_t>(transform.dims.size()));
  }
  for (size_t i = 0; i < transform.dims.size(); ++i) {
    const auto size = sizes[transform.dims[i]];
    const auto wanted = s ? (*s)[i] : -1;
    transform.resized.push_back(wanted == -1 ? size : wanted);
  }
  transform.real_size = transform.resized.empty() ? 0 : transform.resized.back();
  if (transform.kind == Kind::kHalfToReal) {
    if (!s || s->back() == -1)
      transform.real_size = 2 * (sizes[transform.dims.back()] - 1);
    transform.resized.back() = transform.real_size / 2 + 1;
  }
  const bool divides = norm == "forward" ? transform.is_forward : !transform.is_forward;
  if (norm == "ortho")
    transform.norm = 1;
  else
    transform.norm = divides ? 2 : 0;
  return transform;
}

at::Tensor run_complex(const at::Tensor& operand, const Transform& transform, bool is_forward) {
  return at::_fft_c2c(operand, transform.dims, transform.norm, is_forward);
}

// Twice the frequencies that stand for two, because a transform of real numbers keeps half of them.
void double_middle(at::Tensor& half, const Transform& transform) {
  const auto last = transform.dims.back();
  const auto count = transform.real_size - half.size(last);
  if (count > 0)
    half.narrow(last, 1, count).mul_(2);
}

// The gradient of a transform of real numbers, of which half of the frequencies are kept.
at::Tensor from_half(at::Tensor half, const Transform& transform) {
  const auto last = transform.dims.back();
  const auto kept = half.size(last);
  if (kept < transform.real_size) {
    auto sizes = half.sizes().vec();
    sizes[last] = transform.real_size;
    auto full = half.new_zeros(sizes);
    full.narrow(last, 0, kept).copy_(half);
    half = std::move(full);
  }
  return at::real(run_complex(half, transform, /*is_forward=*/false));
}

// Cuts and pads with zeros, as the transform does before its kernel.
at::Tensor resize(at::Tensor operand, const Transform& transform) {
  std::vector<int64_t> padding(2 * static_cast<size_t>(operand.dim()), 0);
  bool is_padded = false;
  for (size_t i = 0; i < transform.dims.size(); ++i) {
    const auto dim = transform.dims[i];
    const auto more = transform.resized[i] - operand.size(dim);
    if (more < 0)
      operand = operand.narrow(dim, 0, transform.resized[i]);
    if (more > 0) {
      padding[padding.size() - 2 * static_cast<size_t>(dim) - 1] = more;
      is_padded = true;
    }
  }
  return is_padded ? at::constant_pad_nd(operand, padding) : operand;
}

at::Tensor undo_resize(at::Tensor gradient, const Transform& transform, const Sizes& sizes) {
  bool is_part = false;
  for (size_t i = 0; i < transform.dims.size(); ++i) {
    const auto dim = transform.dims[i];
    if (transform.resized[i] > sizes[dim]) {
      gradient = gradient.narrow(dim, 0, sizes[dim]);
      is_part = true;
    }
  }
  if (gradient.sizes() == at::IntArrayRef(sizes))
    return is_part ? gradient.clone() : gradient;
  auto whole = gradient.new_zeros(sizes);
  auto part = whole;
  for (size_t i = 0; i < transform.dims.size(); ++i) {
    const auto dim = transform.dims[i];
    part = part.narrow(dim, 0, std::min(transform.resized[i], sizes[dim]));
  }
  part.copy_(gradient);
  return whole;
}

at::Tensor fft_backward(at::Tensor gradient, const std::string& name, const Sizes& sizes,
                        int64_t dtype, const std::optional<Sizes>& s,
                        const std::optional<Sizes>& dim, const std::optional<std::string>& norm) {
  const auto transform = describe(name, sizes, dtype, s, dim, norm);
  switch (transform.kind) {
    case Kind::kComplex:
      gradient = run_complex(gradient, transform, !transform.is_forward);
      break;
    case Kind::kRealToFull:
      if (!transform.is_forward)
        gradient = gradient.conj();
      gradient = at::real(run_complex(gradient, transform, /*is_forward=*/false));
      break;
    case Kind::kRealToHalf:
      gradient = from_half(std::move(gradient), transform);
      break;
    case Kind::kHalfToReal:
      gradient = at::_fft_r2c(gradient, transform.dims, transform.norm, /*onesided=*/true);
      double_middle(gradient, transform);
      break;
  }
  gradient = undo_resize(std::move(gradient), transform, sizes);
  if (!transform.is_complex && gradient.is_complex())
    gradient = at::real(gradient);
  return gradient;
}

// The gradient of fft_backward() with respect to `gradient`; `of_result` has the sizes of the
// operand of the transform.
at::Tensor fft_double_backward(at::Tensor of_result, const std::string& name, const Sizes& sizes,
                               int64_t dtype, const std::optional<Sizes>& s,
                               const std::optional<Sizes>& dim,
                               const std::optional<std::string>& norm) {
  const auto transform = describe(name, sizes, dtype, s, dim, norm);
  const auto as_complex = [](const at::Tensor& tensor) {
    return tensor.to(at::toComplexType(tensor.scalar_type()));
  };
  if (transform.kind == Kind::kComplex && !transform.is_complex)
    of_result = as_complex(of_result);
  auto resized = resize(of_result, transform);
  switch (transform.kind) {
    case Kind::kComplex:
      return run_complex(resized, transform, transform.is_forward);
    case Kind::kRealToFull: {
      auto full = run_complex(as_complex(resized), transform, /*is_forward=*/true);
      return transform.is_forward ? full : full.conj_physical();
    }
    case Kind::kRealToHalf:
      return run_complex(as_complex(resized), transform, /*is_forward=*/true)
          .narrow(transform.dims.back(), 0, transform.real_size / 2 + 1)
          .contiguous();
    case Kind::kHalfToReal:
      break;
  }
  auto doubled = resized.clone();
  double_middle(doubled, transform);
  return from_half(std::move(doubled), transform);
}

// Of a real number, real() returns the number.
at::Tensor backward_of_real(const at::Tensor& gradient, int64_t dtype) {
  return at::isComplexType(static_cast<at::ScalarType>(dtype))
             ? at::complex(gradient, at::zeros_like(gradient))
             : gradient;
}

at::Tensor backward_of_imag(const at::Tensor& gradient) {
  return at::complex(at::zeros_like(gradient), gradient);
}

std::optional<Sizes> as_list(std::optional<int64_t> value) {
  return value ? std::optional(Sizes{*value}) : std::nullopt;
}

}  // namespace

void register_spectral_operators() {
  const std::string arguments =
      "(Tensor gradient, str name, int[] sizes, int dtype, int[]? s, int[]? dim, str? norm) -> "
      "Tensor";
  static const torch::jit::RegisterOperators registered({
      pure_operator("aten_recompute::fft_backward" + arguments, &fft_backward),
      pure_operator("aten_recompute::fft_double_backward" + arguments, &fft_double_backward),
      pure_operator("aten_recompute::real_backward(Tensor gradient, int dtype) -> Tensor",
                    &backward_of_real),
      pure_operator("aten_recompute::imag_backward(Tensor gradient) -> Tensor", &backward_of_imag),
      pure_operator("aten_recompute::as_list(int? value) -> int[]?", &as_list),
  });
}

}  // namespace aten_recompute
