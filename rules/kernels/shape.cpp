// Gradients of operators on shapes and lists that ATen does not have as operators.
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <c10/util/strides.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <numeric>

#include "rules/kernels/boxing.h"
#include "rules/kernels/by_autograd.h"
#include "rules/kernels/layouts.h"
#include "rules/kernels/operators.h"

namespace aten_recompute {
namespace {

using torch::jit::pop;
using torch::jit::Stack;
using Sizes = std::vector<int64_t>;

std::vector<Sizes> pop_sizes(Stack& stack) {
  std::vector<Sizes> sizes;
  const auto list = pop(stack);
  for (const c10::IValue& size : list.toListRef())
    sizes.push_back(size.toIntVector());
  return sizes;
}

// Pops a list of type Tensor[] or Tensor?[]. None becomes an undefined tensor.
std::vector<at::Tensor> pop_gradients(Stack& stack) {
  std::vector<at::Tensor> gradients;
  const auto list = pop(stack);
  for (const c10::IValue& gradient : list.toListRef())
    gradients.push_back(gradient.isNone() ? at::Tensor() : gradient.toTensor());
  return gradients;
}

// Replaces undefined gradients by zeros. Throws if no gradient is defined.
void fill_undefined(std::vector<at::Tensor>& gradients, const std::vector<Sizes>& sizes) {
  const auto defined = std::find_if(gradients.begin(), gradients.end(),
                                    [](const at::Tensor& t) { return t.defined(); });
  TORCH_CHECK(defined != gradients.end(), "no gradient of the list is defined");
  const auto options = defined->options();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined())
      gradients[i] = at::zeros(sizes[i], options);
  }
}

void push_list(Stack& stack, const std::vector<at::Tensor>& tensors) {
  stack.emplace_back(c10::List<at::Tensor>(tensors));
}

int64_t wrapped_dim(int64_t dim, size_t rank) {
  return dim < 0 ? dim + static_cast<int64_t>(rank) : dim;
}

at::Tensor with_dtype(const at::Tensor& gradient, int64_t dtype) {
  const auto type = static_cast<at::ScalarType>(dtype);
  if (gradient.is_complex() && !at::isComplexType(type))
    return at::real(gradient).to(type);
  return gradient.to(type);
}

// ---- metadata ----

void sizes(Stack& stack) {
  c10::List<c10::List<int64_t>> result;
  const auto list = pop(stack);
  for (const c10::IValue& tensor : list.toListRef()) {
    const auto size = tensor.toTensor().sizes();
    result.push_back(c10::List<int64_t>(size));
  }
  stack.emplace_back(std::move(result));
}

void dtypes(Stack& stack) {
  c10::List<int64_t> result;
  const auto list = pop(stack);
  for (const c10::IValue& tensor : list.toListRef())
    result.push_back(static_cast<int64_t>(tensor.toTensor().scalar_type()));
  stack.emplace_back(std::move(result));
}

void negated(Stack& stack) {
  auto values = pop(stack).toIntVector();
  for (auto& value : values)
    value = -value;
  stack.emplace_back(std::move(values));
}

void inverse_permutation(Stack& stack) {
  const auto dims = pop(stack).toIntVector();
  Sizes inverse(dims.size());
  for (size_t i = 0; i < dims.size(); ++i)
    inverse.at(static_cast<size_t>(wrapped_dim(dims[i], dims.size()))) = static_cast<int64_t>(i);
  stack.emplace_back(std::move(inverse));
}

// ---- lists ----

// Returns the part of `grad` along `dim` for each concatenated tensor, which was concatenated with
// at least `min_rank` dimensions (hstack, vstack).
void cat_backward(Stack& stack) {
  const auto min_rank = static_cast<size_t>(pop(stack).toInt());
  auto dim = pop(stack).toInt();
  const auto types = pop(stack).toIntVector();
  const auto shapes = pop_sizes(stack);
  const auto gradient = pop(stack).toTensor();
  dim = wrapped_dim(dim, static_cast<size_t>(gradient.dim()));
  std::vector<at::Tensor> parts;
  int64_t start = 0;
  for (size_t i = 0; i < shapes.size(); ++i) {
    auto shape = shapes[i];
    // cat skips tensors of shape [0], whatever the shape of the others.
    if (shape == Sizes{0} && gradient.dim() != 1 && min_rank == 0) {
      parts.push_back(with_dtype(at::zeros({0}, gradient.options()), types[i]));
      continue;
    }
    while (shape.size() < min_rank)
      shape.insert(shape.begin(), 1);
    const auto length = shape.at(static_cast<size_t>(dim));
    auto part = gradient.narrow(dim, start, length);
    if (shape != shapes[i])
      part = part.reshape(shapes[i]);
    parts.push_back(with_dtype(part, types[i]));
    start += length;
  }
  push_list(stack, parts);
}

// Returns the gradient of cat_backward()'s gradient, which has this type. What cat_backward()
// returned is of the types `dtypes`, which the gradient of this reads.
at::Tensor cat_double_backward(std::vector<std::optional<at::Tensor>> gradients,
                               std::vector<Sizes> shapes, const Sizes& /*dtypes*/, int64_t dim,
                               int64_t min_rank, int64_t dtype) {
  std::vector<at::Tensor> parts;
  for (auto& gradient : gradients)
    parts.push_back(gradient.value_or(at::Tensor()));
  fill_undefined(parts, shapes);
  for (auto& part : parts) {
    auto shape = part.sizes().vec();
    while (shape.size() < static_cast<size_t>(min_rank))
      shape.insert(shape.begin(), 1);
    part = with_dtype(part.reshape(shape), dtype);
  }
  return at::cat(parts, dim);
}

// The same for stack_backward().
at::Tensor stack_double_backward(std::vector<std::optional<at::Tensor>> gradients,
                                 const Sizes& /*dtypes*/, int64_t dim, int64_t dtype) {
  const auto defined = std::find_if(gradients.begin(), gradients.end(), [](const auto& gradient) {
    return gradient.has_value() && gradient->defined();
  });
  TORCH_CHECK(defined != gradients.end(), "no gradient of the list is defined");
  std::vector<at::Tensor> parts;
  for (const auto& gradient : gradients)
    parts.push_back(with_dtype(
        gradient.has_value() && gradient->defined() ? *gradient : at::zeros_like(**defined),
        dtype));
  return at::stack(parts, dim);
}

void stack_backward(Stack& stack) {
  const auto dim = pop(stack).toInt();
  const auto types = pop(stack).toIntVector();
  const auto gradient = pop(stack).toTensor();
  auto parts = gradient.unbind(dim);
  for (size_t i = 0; i < parts.size(); ++i)
    parts[i] = with_dtype(parts[i], types.at(i));
  push_list(stack, parts);
}

void broadcast_tensors_backward(Stack& stack) {
  const auto shapes = pop_sizes(stack);
  auto gradients = pop_gradients(stack);
  fill_undefined(gradients, shapes);
  for (size_t i = 0; i < shapes.size(); ++i)
    gradients[i] = at::sum_to(std::move(gradients[i]), shapes[i]);
  push_list(stack, gradients);
}

at::Tensor joined(std::vector<at::Tensor> gradients, const Sizes& size, const Sizes& lengths,
                  int64_t dim) {
  const auto axis = static_cast<size_t>(wrapped_dim(dim, size.size()));
  std::vector<Sizes> shapes(lengths.size(), size);
  for (size_t i = 0; i < lengths.size(); ++i)
    shapes[i].at(axis) = lengths[i];
  fill_undefined(gradients, shapes);
  return at::cat(gradients, dim);
}

void split_with_sizes_backward(Stack& stack) {
  const auto dim = pop(stack).toInt();
  const auto lengths = pop(stack).toIntVector();
  const auto size = pop(stack).toIntVector();
  stack.emplace_back(joined(pop_gradients(stack), size, lengths, dim));
}

void split_backward(Stack& stack) {
  const auto dim = pop(stack).toInt();
  const auto split_size = pop(stack).toInt();
  const auto size = pop(stack).toIntVector();
  auto gradients = pop_gradients(stack);
  auto left = size.at(static_cast<size_t>(wrapped_dim(dim, size.size())));
  Sizes lengths;
  for (size_t i = 0; i < gradients.size(); ++i) {
    lengths.push_back(std::min(split_size, left));
    left -= lengths.back();
  }
  stack.emplace_back(joined(std::move(gradients), size, lengths, dim));
}

void tensor_split_backward(Stack& stack) {
  const auto dim = pop(stack).toInt();
  const auto size = pop(stack).toIntVector();
  auto gradients = pop_gradients(stack);
  const auto total = size.at(static_cast<size_t>(wrapped_dim(dim, size.size())));
  const auto sections = static_cast<int64_t>(gradients.size());
  Sizes lengths;
  for (int64_t i = 0; i < sections; ++i)
    lengths.push_back(total / sections + (i < total % sections ? 1 : 0));
  stack.emplace_back(joined(std::move(gradients), size, lengths, dim));
}

// The parts are slices between neighbors of 0, indices and the size, with Python's rules.
void tensor_split_indices_backward(Stack& stack) {
  const auto dim = pop(stack).toInt();
  auto ends = pop(stack).toIntVector();
  const auto size = pop(stack).toIntVector();
  auto gradients = pop_gradients(stack);
  const auto total = size.at(static_cast<size_t>(wrapped_dim(dim, size.size())));
  for (auto& end : ends)
    end = std::clamp<int64_t>(end < 0 ? end + total : end, 0, total);
  ends.push_back(total);
  if (std::is_sorted(ends.begin(), ends.end())) {
    Sizes lengths;
    for (size_t i = 0; i < ends.size(); ++i)
      lengths.push_back(ends[i] - (i == 0 ? 0 : ends[i - 1]));
    stack.emplace_back(joined(std::move(gradients), size, lengths, dim));
    return;
  }
  // Parts overlap. Eager PyTorch adds the last one's gradient first.
  at::Tensor sum;
  for (size_t i = gradients.size(); i-- > 0;) {
    if (!gradients[i].defined())
      continue;
    const auto start = i == 0 ? 0 : ends[i - 1];
    const auto part =
        at::slice_backward(gradients[i], size, dim, start, std::max(start, ends[i]), 1);
    sum = sum.defined() ? sum + part : part;
  }
  stack.emplace_back(std::move(sum));
}

void unbind_backward(Stack& stack) {
  const auto dim = pop(stack).toInt();
  auto gradients = pop_gradients(stack);
  const auto defined = std::find_if(gradients.begin(), gradients.end(),
                                    [](const at::Tensor& t) { return t.defined(); });
  TORCH_CHECK(defined != gradients.end(), "no gradient of the list is defined");
  fill_undefined(gradients, std::vector<Sizes>(gradients.size(), defined->sizes().vec()));
  stack.emplace_back(at::stack(gradients, dim));
}

// ---- repetitions ----

// Sums over the copies as eager PyTorch does: over leading dimensions first, then over all others
// at once.
void repeat_backward(Stack& stack) {
  const auto size = pop(stack).toIntVector();
  auto repeats = pop(stack).toIntVector();
  auto gradient = pop(stack).toTensor();
  while (repeats.size() < size.size())
    repeats.insert(repeats.begin(), 1);  // tile
  if (std::find(repeats.begin(), repeats.end(), 0) != repeats.end()) {
    stack.emplace_back(at::zeros(size, gradient.options()));
    return;
  }
  const auto leading = repeats.size() - size.size();
  for (size_t i = 0; i < leading; ++i)
    gradient = gradient.sum(0, /*keepdim=*/false);
  Sizes shape;
  Sizes copies;
  for (size_t i = 0; i < size.size(); ++i) {
    if (repeats[leading + i] != 1) {
      copies.push_back(static_cast<int64_t>(shape.size()));
      shape.push_back(repeats[leading + i]);
    }
    shape.push_back(size[i]);
  }
  gradient = gradient.reshape(shape);
  if (!copies.empty())
    gradient = gradient.sum(copies, /*keepdim=*/false);
  stack.emplace_back(std::move(gradient));
}

// repeat_interleave expands a new dimension after `dim` and flattens the two.
void repeat_interleave_backward(Stack& stack) {
  const auto dim = pop(stack).toOptional<int64_t>();
  const auto repeats = pop(stack).toInt();
  const auto size = pop(stack).toIntVector();
  const auto gradient = pop(stack).toTensor();
  auto shape = size;
  if (!dim.has_value())
    shape = {c10::multiply_integers(size)};
  if (shape.empty())
    shape = {1};
  const auto axis = wrapped_dim(dim.value_or(0), shape.size());
  shape.insert(shape.begin() + axis + 1, repeats);
  stack.emplace_back(gradient.reshape(shape).sum(axis + 1, /*keepdim=*/false).reshape(size));
}

// ---- padding ----

// An element has up to two copies in each dimension. The result's bits depend on the order in which
// they are added.
at::Tensor circular_pad_backward(const at::Tensor& gradient, const Sizes& size, const Sizes& pad) {
  return gradients_by_autograd(
      [&](const auto& inputs) { return at::pad(inputs[0], pad, "circular"); },
      {at::empty(size, gradient.options())}, gradient)[0];
}

// Returns the gradient of `self` by reflection or replication. The kernels read only its shape.
at::Tensor mirrored_pad_backward(const at::Tensor& gradient, const at::Tensor& self,
                                 const Sizes& pad, const std::string& mode) {
  const bool reflect = mode == "reflect";
  if (pad.size() == 2) {
    return reflect ? at::reflection_pad1d_backward(gradient, self, pad)
                   : at::replication_pad1d_backward(gradient, self, pad);
  }
  if (pad.size() == 4) {
    return reflect ? at::reflection_pad2d_backward(gradient, self, pad)
                   : at::replication_pad2d_backward(gradient, self, pad);
  }
  return reflect ? at::reflection_pad3d_backward(gradient, self, pad)
                 : at::replication_pad3d_backward(gradient, self, pad);
}

void pad_backward(Stack& stack) {
  const auto mode = pop(stack).toStringRef();
  const auto pad = pop(stack).toIntVector();
  const auto size = pop(stack).toIntVector();
  const auto gradient = pop(stack).toTensor();
  if (mode == "circular") {
    stack.emplace_back(circular_pad_backward(gradient, size, pad));
    return;
  }
  // One expanded element stands in for the input.
  const auto self = at::empty({1}, gradient.options()).expand(size);
  stack.emplace_back(mirrored_pad_backward(gradient, self, pad, mode));
}

void pad_backward_of_self(Stack& stack) {
  const auto mode = pop(stack).toStringRef();
  const auto pad = pop(stack).toIntVector();
  const auto self = pop(stack).toTensor();
  const auto gradient = pop(stack).toTensor();
  stack.emplace_back(mirrored_pad_backward(gradient, self, pad, mode));
}

// ---- as_strided ----

// Several elements of the view may be one element of the tensor, and the reverse. Autograd adds
// them up in an order of its own.
at::Tensor as_strided_backward(at::Tensor gradient, Sizes self_size, Sizes self_stride,
                               int64_t self_offset, Sizes size, Sizes stride,
                               std::optional<int64_t> offset) {
  int64_t extent = self_offset + 1;
  for (size_t i = 0; i < self_size.size(); ++i)
    extent += std::max<int64_t>(self_size[i] - 1, 0) * self_stride[i];
  int64_t view_extent = offset.value_or(self_offset) + 1;
  for (size_t i = 0; i < size.size(); ++i)
    view_extent += std::max<int64_t>(size[i] - 1, 0) * stride[i];
  const auto memory = at::empty({std::max(extent, view_extent)}, gradient.options());
  const auto self = memory.as_strided(self_size, self_stride, self_offset);
  return gradients_by_autograd(
      [&](const auto& inputs) { return inputs[0].as_strided(size, stride, offset); }, {self},
      gradient)[0];
}

// ---- layouts of images (passes/region/channels_last.h) ----

at::Tensor channels_last(at::Tensor self) {
  switch (self.dim()) {
    case 4:
      return self.contiguous(at::MemoryFormat::ChannelsLast);
    case 5:
      return self.contiguous(at::MemoryFormat::ChannelsLast3d);
    default:
      return self;
  }
}

// Strides of dimensions with one element are those of a new tensor, too.
at::Tensor channels_first(at::Tensor self) {
  auto result = self.contiguous();
  const auto strides = c10::contiguous_strides(result.sizes());
  return result.strides() == at::IntArrayRef(strides) ? result
                                                      : result.as_strided(result.sizes(), strides);
}

// Returns the tensor with its channels last if a tensor of this size and stride has them there.
at::Tensor in_layout(at::Tensor self, std::vector<int64_t> size, std::vector<int64_t> stride) {
  return is_channels_last(size, stride) ? channels_last(self) : channels_first(self);
}

// ---- gaps between rows ----

// Returns the tensor with gaps in memory where a tensor of this size and stride has some, as parts
// of a larger tensor have. The gaps are as small as possible. ATen's kernels for the CPU compute
// stretches of elements without gaps, and how they round depends on where a stretch ends.
at::Tensor with_gaps_of(at::Tensor self, Sizes size, Sizes stride) {
  if (!self.device().is_cpu() || self.numel() == 0)
    return self;
  std::vector<size_t> order(size.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return stride[a] > stride[b]; });
  Sizes with_gaps(size.size());
  bool has_gaps = false;
  int64_t end = 1;            // of the dimensions so far
  int64_t end_in_memory = 1;  // the same in the tensor of this size and stride
  for (auto it = order.rbegin(); it != order.rend(); ++it) {
    const auto dim = *it;
    const bool has_gap = size[dim] > 1 && stride[dim] != end_in_memory;
    has_gaps = has_gaps || has_gap;
    with_gaps[dim] = end + (has_gap ? 1 : 0);
    end = with_gaps[dim] * size[dim];
    if (size[dim] > 1)
      end_in_memory = stride[dim] * size[dim];
  }
  if (!has_gaps)
    return self;
  return at::empty_strided(size, with_gaps, self.options()).copy_(self);
}

}  // namespace

void register_shape_operators() {
  using torch::jit::Operator;
  const auto pure = c10::AliasAnalysisKind::PURE_FUNCTION;
  static const torch::jit::RegisterOperators registered({
      Operator("aten_recompute::sizes(Tensor[] tensors) -> int[][]", sizes, pure),
      Operator("aten_recompute::dtypes(Tensor[] tensors) -> int[]", dtypes, pure),
      Operator("aten_recompute::negated(int[] values) -> int[]", negated, pure),
      Operator("aten_recompute::inverse_permutation(int[] dims) -> int[]", inverse_permutation,
               pure),
      Operator(
          "aten_recompute::cat_backward(Tensor gradient, int[][] sizes, int[] dtypes, int dim, "
          "int min_rank) -> Tensor[]",
          cat_backward, pure),
      pure_operator("aten_recompute::cat_double_backward(Tensor?[] gradients, int[][] sizes, int[] "
                    "dtypes, int dim, int min_rank, int dtype) -> Tensor",
                    &cat_double_backward),
      pure_operator(
          "aten_recompute::stack_double_backward(Tensor?[] gradients, int[] dtypes, int dim, int "
          "dtype) -> Tensor",
          &stack_double_backward),
      Operator("aten_recompute::stack_backward(Tensor gradient, int[] dtypes, int dim) -> Tensor[]",
               stack_backward, pure),
      Operator("aten_recompute::broadcast_tensors_backward(Tensor?[] gradients, int[][] sizes) "
               "-> Tensor[]",
               broadcast_tensors_backward, pure),
      Operator("aten_recompute::split_with_sizes_backward(Tensor?[] gradients, int[] size, "
               "int[] split_sizes, int dim) -> Tensor",
               split_with_sizes_backward, pure),
      Operator("aten_recompute::split_backward(Tensor?[] gradients, int[] size, int split_size, "
               "int dim) -> Tensor",
               split_backward, pure),
      Operator("aten_recompute::tensor_split_backward(Tensor?[] gradients, int[] size, int dim) "
               "-> Tensor",
               tensor_split_backward, pure),
      Operator("aten_recompute::tensor_split_indices_backward(Tensor?[] gradients, int[] size, "
               "int[] indices, int dim) -> Tensor",
               tensor_split_indices_backward, pure),
      Operator("aten_recompute::unbind_backward(Tensor?[] gradients, int dim) -> Tensor",
               unbind_backward, pure),
      Operator(
          "aten_recompute::repeat_backward(Tensor gradient, int[] repeats, int[] size) -> Tensor",
          repeat_backward, pure),
      Operator(
          "aten_recompute::repeat_interleave_backward(Tensor gradient, int[] size, int repeats, "
          "int? dim) -> Tensor",
          repeat_interleave_backward, pure),
      Operator("aten_recompute::pad_backward(Tensor gradient, int[] size, int[] pad, str mode) "
               "-> Tensor",
               pad_backward, pure),
      Operator("aten_recompute::pad_backward_of_self(Tensor gradient, Tensor self, int[] pad, "
               "str mode) -> Tensor",
               pad_backward_of_self, pure),
      pure_operator("aten_recompute::channels_last(Tensor self) -> Tensor", &channels_last),
      pure_operator("aten_recompute::channels_first(Tensor self) -> Tensor", &channels_first),
      pure_operator("aten_recompute::in_layout(Tensor self, int[] size, int[] stride) -> Tensor",
                    &in_layout),
      pure_operator("aten_recompute::with_gaps_of(Tensor self, int[] size, int[] stride) -> Tensor",
                    &with_gaps_of),
      pure_operator("aten_recompute::as_strided_backward(Tensor gradient, int[] self_size, "
                    "int[] self_stride, int self_offset, int[] size, int[] stride, int? offset) "
                    "-> Tensor",
                    &as_strided_backward),
  });
}

}  // namespace aten_recompute
