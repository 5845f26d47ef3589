#include "rules/convolution_shapes.h"

#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <cmath>

#include "runtime/meta_memory.h"

namespace aten_recompute::shapes {
namespace {

using at::Tensor;
using torch::jit::Stack;

// A convolution, forward or backward, of images with their batch.
struct Convolution {
  Tensor input, weight;
  Sizes stride, padding, dilation, output_padding;
  bool transposed = false;
  bool same_padding = false;
  int64_t groups = 1;

  size_t dims() const { return static_cast<size_t>(weight.dim()) - 2; }
  bool is_strided() const {
    return std::any_of(stride.begin(), stride.end(), [](int64_t s) { return s != 1; });
  }
  bool has_channels_last() const {
    const auto is_last = [](const Tensor& tensor) {
      const auto format = tensor.suggest_memory_format();
      return format == at::MemoryFormat::ChannelsLast || format == at::MemoryFormat::ChannelsLast3d;
    };
    return is_last(input) || is_last(weight);
  }
  // oneDNN computes these, in layouts of its own; other kernels unfold the image. The conditions
  // are those of use_mkldnn() in aten/src/ATen/native/Convolution.cpp.
  bool is_in_blocks() const {
    const auto type = input.scalar_type();
    if (has_channels_last() || (transposed && (has_large_output_padding() || is_depthwise())))
      return false;
    return type == at::kBFloat16 || type == at::kHalf ||
           (type == at::kFloat && gains_by_threads() && is_large());
  }
  bool is_dilated() const {
    return std::any_of(dilation.begin(), dilation.end(), [](int64_t d) { return d != 1; });
  }
  bool has_large_output_padding() const {
    for (size_t i = 0; i < dims(); ++i) {
      if (output_padding[i] >= stride[i])
        return true;
    }
    return false;
  }
  bool is_depthwise() const { return groups > 1 && input.size(1) == groups; }
  // The sizes of the last two dimensions of the kernel; one-dimensional ones count as images.
  int64_t kernel_width() const { return weight.size(-1); }
  int64_t kernel_height() const { return weight.dim() == 3 ? 1 : weight.size(-2); }
  bool gains_by_threads() const {
    return is_strided() || is_dilated() || input.size(0) >= 16 || kernel_width() != 1 ||
           kernel_height() != 1 || at::get_num_threads() > 1;
  }
  bool is_large() const {
    constexpr int64_t kElements = 20480;  // of the first four dimensions
    int64_t elements = 1;
    for (int64_t d = 0; d < std::min<int64_t>(4, input.dim()); ++d)
      elements *= input.size(d);
    return groups > 1 || (kernel_width() > 3 && kernel_height() > 3) || input.size(0) > 1 ||
           elements > kElements;
  }
};

Convolution convolution_of(const Operands& operands, bool transposed) {
  Convolution convolution;
  convolution.input = operands.tensor("input");
  convolution.weight = operands.tensor("weight");
  const auto dims = convolution.dims();
  convolution.stride = operands.ints("stride", dims, 1);
  convolution.dilation = operands.ints("dilation", dims, 1);
  convolution.output_padding = operands.ints("output_padding", dims, 0);
  const auto padding = operands.named("padding");
  convolution.padding = operands.ints("padding", dims, 0);
  convolution.same_padding = padding.isString() && padding.toStringRef() == "same";
  const auto flag = operands.named("transposed");
  convolution.transposed = flag.isBool() ? flag.toBool() : transposed;
  const auto groups = operands.named("groups");
  convolution.groups = groups.isInt() ? groups.toInt() : 1;
  return convolution;
}

Sizes output_sizes(const Convolution& convolution, const Tensor& input) {
  const auto dims = convolution.dims();
  const auto& weight = convolution.weight;
  Sizes sizes{input.size(0),
              convolution.transposed ? weight.size(1) * convolution.groups : weight.size(0)};
  for (size_t i = 0; i < dims; ++i) {
    const auto d = static_cast<int64_t>(i) + 2;
    const auto reach = convolution.dilation[i] * (weight.size(d) - 1) + 1;
    if (convolution.same_padding)
      sizes.push_back(input.size(d));
    else if (convolution.transposed)
      sizes.push_back((input.size(d) - 1) * convolution.stride[i] - 2 * convolution.padding[i] +
                      reach + convolution.output_padding[i]);
    else
      sizes.push_back((input.size(d) + 2 * convolution.padding[i] - reach) / convolution.stride[i] +
                      1);
  }
  return sizes;
}

int64_t channels_in_a_block() {
  static const int64_t channels = at::get_cpu_capability().rfind("AVX512", 0) == 0 ? 16 : 8;
  return channels;
}

int64_t in_blocks(int64_t channels) {
  const auto block = channels_in_a_block();
  return (channels + block - 1) / block * block;
}

// Returns the bytes of an image in oneDNN's layout, in which channels come in blocks.
int64_t blocked(const Tensor& image) {
  return bytes_of(image) / std::max<int64_t>(1, image.size(1)) * in_blocks(image.size(1));
}

// Transposed convolutions leave an image of few channels as it is.
int64_t blocked_or_plain(const Tensor& image) {
  return image.size(1) < channels_in_a_block() ? bytes_of(image) : blocked(image);
}

// Returns the bytes of a copy of the image that a convolution reads. One of few channels is read as
// it is, unless each position stands for itself.
int64_t blocked_input(const Convolution& convolution) {
  if (convolution.transposed)
    return blocked_or_plain(convolution.input);
  const auto kernel = convolution.weight.sizes().slice(2);
  const bool is_one_by_one =
      std::all_of(kernel.begin(), kernel.end(), [](auto k) { return k == 1; });
  const bool is_read_as_it_is = !is_one_by_one && convolution.input.size(1) < channels_in_a_block();
  return is_read_as_it_is ? 0 : blocked(convolution.input);
}

// Returns what the gradient of a weight takes in oneDNN's layout. Threads that share a small one
// sum it up separately.
int64_t blocked_gradient(const Tensor& weight) {
  constexpr int64_t kLargestShared = 192 << 10;
  const auto inner = weight.size(1) <= 3 ? weight.size(1) : in_blocks(weight.size(1));
  const auto elements = std::max<int64_t>(1, weight.size(0) * weight.size(1));
  const auto bytes = bytes_of(weight) / elements * in_blocks(weight.size(0)) * inner;
  return bytes <= kLargestShared ? bytes * at::get_num_threads() : bytes;
}

// Takes the memory in which oneDNN computes a result of `result` bytes: copies of operands and
// result in its layouts, then `later` beside the result itself.
void compute_in_blocks(int64_t copies, int64_t later, int64_t result) {
  scratch(std::max(copies - result, later));
}

// Returns the bytes beside an image of the convolution that has been computed. It has two copies if
// it is spread over a stride.
int64_t copies_of_result(const Tensor& image, bool is_spread) {
  return is_spread ? 2 * bytes_of(image) : blocked(image);
}

// Returns the bytes of the image of a convolution unfolded, one column for each position.
// Transposed convolutions fold what they compute, one image at a time.
int64_t columns(const Convolution& convolution, const Tensor& output) {
  const auto& positions = convolution.transposed ? convolution.input : output;
  int64_t elements = positions.numel() / std::max<int64_t>(1, positions.size(1));
  bool is_one_by_one = !convolution.is_strided();
  for (int64_t d = 2; d < convolution.weight.dim(); ++d) {
    elements *= convolution.weight.size(d);
    is_one_by_one = is_one_by_one && convolution.weight.size(d) == 1;
  }
  if (is_one_by_one)
    return 0;
  const auto channels = convolution.transposed ? convolution.weight.size(1) /
                                                     std::max<int64_t>(1, convolution.input.size(0))
                                               : convolution.input.size(1);
  return elements * channels * static_cast<int64_t>(convolution.input.element_size());
}

Tensor image_like(const Convolution& convolution, const Sizes& sizes) {
  return convolution.has_channels_last()
             ? at::empty(sizes, convolution.input.options(),
                         sizes.size() == 5 ? at::MemoryFormat::ChannelsLast3d
                                           : at::MemoryFormat::ChannelsLast)
             : empty(sizes, convolution.input.options());
}

Stack convolve(const Operands& operands, bool transposed) {
  auto convolution = convolution_of(operands, transposed);
  const bool is_batched = convolution.input.dim() == convolution.weight.dim();
  if (!is_batched)
    convolution.input = convolution.input.unsqueeze(0);
  const auto output = image_like(convolution, output_sizes(convolution, convolution.input));
  const auto copies = dense_copy(convolution.input);
  if (convolution.is_in_blocks()) {
    compute_in_blocks(copies + blocked_input(convolution) + bytes_of(convolution.weight) +
                          (convolution.transposed ? blocked_or_plain(output) : blocked(output)),
                      copies_of_result(output, convolution.transposed && convolution.is_strided()),
                      bytes_of(output));
  } else if (!convolution.has_channels_last()) {
    scratch(copies + columns(convolution, output));
  }
  return {is_batched ? output : output.squeeze(0)};
}

}  // namespace

Stack convolution(const Operands& operands) {
  return convolve(operands, /*transposed=*/false);
}

Stack transposed_convolution(const Operands& operands) {
  return convolve(operands, /*transposed=*/true);
}

Stack convolution_backward(const Operands& operands) {
  auto convolution = convolution_of(operands, /*transposed=*/false);
  auto grad = operands.tensor("grad");
  const auto mask = operands.named("mask").toBoolList();
  const bool is_batched = convolution.input.dim() == convolution.weight.dim();
  if (!is_batched) {
    convolution.input = convolution.input.unsqueeze(0);
    grad = grad.unsqueeze(0);
  }
  const auto weight_bytes = bytes_of(convolution.weight);
  const auto copies = dense_copy(grad) + (mask.get(1) ? dense_copy(convolution.input) : 0);
  Tensor for_input, for_weight, for_bias;
  if (mask.get(0))
    for_input = image_like(convolution, convolution.input.sizes().vec());
  if (mask.get(1))
    for_weight = convolution.has_channels_last()
                     ? at::empty_like(convolution.weight)
                     : at::empty_like(convolution.weight, at::MemoryFormat::Contiguous);
  if (mask.get(2))
    for_bias = empty({grad.size(1)}, grad.options());
  if (convolution.is_in_blocks()) {
    const bool has_few = convolution.transposed && grad.size(1) < channels_in_a_block();
    if (for_input.defined())
      compute_in_blocks(
          copies + (has_few ? 0 : blocked(grad)) + weight_bytes + blocked(for_input),
          copies_of_result(for_input, convolution.is_strided() && !convolution.transposed),
          bytes_of(for_input));
    if (for_weight.defined())
      compute_in_blocks(
          copies + (has_few ? copies_of_result(grad, convolution.is_strided()) : blocked(grad)) +
              blocked_input(convolution) + blocked_gradient(convolution.weight),
          weight_bytes, weight_bytes);
  } else if (!convolution.has_channels_last()) {
    // Volumes are folded from columns of their own, even those of a 1x1x1 filter.
    const bool is_folded =
        for_input.defined() && convolution.dims() == 3 && !convolution.transposed;
    scratch(copies + std::max(columns(convolution, grad), is_folded ? bytes_of(for_input) : 0));
  }
  if (!is_batched && for_input.defined())
    for_input = for_input.squeeze(0);
  return {for_input, for_weight, for_bias};
}

}  // namespace aten_recompute::shapes
