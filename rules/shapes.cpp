#include "rules/shapes.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/Parallel.h>
#include <ATen/SDPBackend.h>
#include <ATen/Version.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/meta_memory.h"

namespace aten_recompute {
namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;
using Sizes = std::vector<int64_t>;

// The operands of a node under the names of its schema.
class Operands {
 public:
  Operands(const c10::FunctionSchema& schema, Stack values)
      : schema_(schema), values_(std::move(values)) {}

  const IValue& operator[](size_t i) const { return values_.at(i); }
  size_t size() const { return values_.size(); }
  const std::vector<IValue>& all() const { return values_; }

  // Returns None where the schema has no such argument.
  IValue named(const std::string& name) const {
    const auto index = schema_.argumentIndexWithName(name);
    return index && static_cast<size_t>(*index) < values_.size() ? values_[*index] : IValue();
  }
  Tensor tensor(const std::string& name) const {
    const auto value = named(name);
    return value.isTensor() ? value.toTensor() : Tensor();
  }
  // An int stands for as many equal ones as are wanted.
  Sizes ints(const std::string& name, size_t count, int64_t fallback) const {
    const auto value = named(name);
    if (value.isIntList()) {
      auto list = value.toIntVector();
      if (list.size() == 1)
        list.assign(count, list[0]);
      return list.size() == count ? list : Sizes(count, fallback);
    }
    return Sizes(count, value.isInt() ? value.toInt() : fallback);
  }

 private:
  const c10::FunctionSchema& schema_;
  Stack values_;
};

// Returns the results; nothing where the operator itself has to run.
using Describe = Stack (*)(const Operands& operands);

Tensor empty(const Sizes& sizes, const at::TensorOptions& options) {
  return at::empty(sizes, options.device(at::kMeta));
}

Tensor scratch(int64_t bytes) {
  return at::empty({std::max<int64_t>(bytes, 0)},
                   at::TensorOptions().dtype(at::kByte).device(at::kMeta));
}

int64_t bytes_of(const Tensor& tensor) {
  return tensor.defined() ? tensor.numel() * static_cast<int64_t>(tensor.element_size()) : 0;
}

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
  const Tensor partial_sums = scratch(2 * at::get_num_threads() * bytes_of(weight));
  return gradients_like({operands[1].toTensor(), weight, operands.tensor("bias")},
                        operands.named("output_mask"));
}

Stack batch_norm(const Operands& operands) {
  const auto& input = operands[0].toTensor();
  const auto options = input.options().dtype(
      at::isReducedFloatingType(input.scalar_type()) ? at::kFloat : input.scalar_type());
  const bool training = operands.named("training").toBool();
  const Sizes channels{training ? input.size(1) : 0};
  return {at::empty_like(input, input.suggest_memory_format()), empty(channels, options),
          empty(channels, options), empty({0}, input.options().dtype(at::kByte)), int64_t{0}};
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

Stack like_input(const Operands& operands) {
  return {at::empty_like(operands.tensor("input"), at::MemoryFormat::Contiguous)};
}

// ---- convolutions ----

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

// Operators of convolutions make a dense copy of an operand that is a part of another tensor.
int64_t dense_copy(const Tensor& tensor) {
  return tensor.is_contiguous() ? 0 : bytes_of(tensor);
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
         states * (3 * row_bytes(size) + 2 * 4 * size);
}

Stack lstm_layer(const Operands& operands) {
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

const std::unordered_map<std::string_view, Describe>& shape_functions() {
  static const std::unordered_map<std::string_view, Describe> functions{
      {"aten_recompute::dropout_mask", &mask_like},
      {"aten_recompute::alpha_dropout_mask", &mask_like},
      {"aten_recompute::apply_dropout_mask", &like_first},
      {"aten_recompute::pack_bits", &bits_of},
      {"aten_recompute::positive_bits", &bits_of},
      {"aten_recompute::unpack_bits", &mask_of_bits},
      {"aten_recompute::threshold_backward_bits", &like_first},
      {"aten::embedding", &embedding},
      {"aten::embedding_backward", &embedding_backward},
      {"aten::embedding_dense_backward", &embedding_backward},
      {"aten::native_layer_norm", &layer_norm},
      {"aten::native_layer_norm_backward", &layer_norm_backward},
      {"aten_recompute::batch_norm", &batch_norm},
      {"aten_recompute::clamped_batch_norm", &batch_norm_result},
      {"aten_recompute::batch_norm_from_statistics", &batch_norm_result},
      {"aten_recompute::batch_norm_backward", &batch_norm_backward},
      {"aten_recompute::batch_norm_as_seen", &batch_norm_result},
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
      {"aten_recompute::lstm_layer", &lstm_layer},
      {"aten_recompute::lstm_layer_backward", &lstm_layer_backward},
      {"aten_recompute::group_norm", &group_norm},
      {"aten_recompute::group_norm_backward", &group_norm_backward},
      {"aten::upsample_bilinear2d", &bilinear},
      {"aten::upsample_bilinear2d_backward", &bilinear_backward},
      {"aten::conv1d", &convolution},
      {"aten::conv2d", &convolution},
      {"aten::conv3d", &convolution},
      {"aten::convolution", &convolution},
      {"aten::_convolution", &convolution},
      {"aten::conv_transpose1d", &transposed_convolution},
      {"aten::conv_transpose2d", &transposed_convolution},
      {"aten::conv_transpose3d", &transposed_convolution},
      {"aten_recompute::convolution_backward", &convolution_backward},
      {"aten_recompute::convolution_mode_backward", &convolution_backward},
      {"aten::relu", &like_first},
      {"aten::arange", &arange},
      {"aten::index_select", &index_select},
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
