#include "rules/families.h"

namespace aten_recompute {
namespace {

// Views and copies that only rearrange their input. Their gradients need only metadata.
void add_rearrangements(std::vector<Rule>& rules) {
  // As in eager PyTorch, the gradient gets the shape of the input, as a view if possible.
  for (const char* op :
       {"aten::view", "aten::reshape", "aten::view_as", "aten::reshape_as",
        "aten::flatten.using_ints", "aten::unflatten.int", "aten::ravel", "aten::squeeze",
        "aten::squeeze.dim", "aten::squeeze.dims", "aten::_unsafe_view", "aten::_reshape_alias"}) {
    rules.push_back({.op = op, .gradients = {{"self", "grad.reshape(self.size())"}}});
  }
  for (const char* op : {"aten::contiguous", "aten::clone", "aten::alias", "aten::lift",
                         "aten_recompute::with_gaps_of"}) {
    rules.push_back({.op = op, .gradients = {{"self", "grad"}}});
  }
  for (const char* op : {"aten_recompute::channels_last", "aten_recompute::channels_first"}) {
    rules.push_back(
        {.op = op,
         .gradients = {{"self", "recompute.in_layout(grad, self.size(), self.stride())"}}});
  }
  // Both functions return the gradient itself if nothing changes. reduce_grad takes the real part
  // of complex gradients without a warning.
  for (const char* op : {"aten::to.device", "aten::to.dtype", "aten::to.dtype_layout",
                         "aten::to.other", "aten::to.prim_Device", "aten::to.prim_dtype",
                         "aten::to.prim_other", "aten::type_as", "aten::cpu", "aten::cuda"}) {
    rules.push_back(
        {.op = op,
         .gradients = {
             {"self", "recompute.reduce_grad(grad, self.size(), self.dtype).to(self.device)"}}});
  }
  for (const char* op : {"aten::expand", "aten::expand_as", "aten::broadcast_to"}) {
    rules.push_back(
        {.op = op,
         .gradients = {{"self", "recompute.reduce_grad(grad, self.size(), self.dtype)"}}});
  }
  const std::vector<Rule> more = {
      {.op = "aten::t", .gradients = {{"self", "grad.t()"}}},
      {.op = "aten::numpy_T", .gradients = {{"self", "torch.numpy_T(grad)"}}},
      {.op = "aten::numpy_T.a", .gradients = {{"self", "torch.numpy_T(grad)"}}},
      {.op = "aten::mT", .gradients = {{"self", "torch.mT(grad)"}}},
      {.op = "aten::mT.a", .gradients = {{"self", "torch.mT(grad)"}}},
      {.op = "aten::adjoint", .gradients = {{"self", "torch.adjoint(grad)"}}},
      {.op = "aten::transpose.int", .gradients = {{"self", "grad.transpose(dim0, dim1)"}}},
      {.op = "aten::swapdims", .gradients = {{"self", "grad.transpose(dim0, dim1)"}}},
      {.op = "aten::swapaxes", .gradients = {{"self", "grad.transpose(axis0, axis1)"}}},
      {.op = "aten::permute",
       .gradients = {{"self", "grad.permute(recompute.inverse_permutation(dims))"}}},
      {.op = "aten::movedim.int", .gradients = {{"self", "grad.movedim(destination, source)"}}},
      {.op = "aten::movedim.intlist", .gradients = {{"self", "grad.movedim(destination, source)"}}},
      {.op = "aten::moveaxis.int", .gradients = {{"self", "grad.movedim(destination, source)"}}},
      {.op = "aten::moveaxis.intlist",
       .gradients = {{"self", "grad.movedim(destination, source)"}}},
      {.op = "aten::unsqueeze", .gradients = {{"self", "grad.squeeze(dim)"}}},
      {.op = "aten::flip", .gradients = {{"self", "grad.flip(dims)"}}},
      {.op = "aten::fliplr", .gradients = {{"self", "grad.fliplr()"}}},
      {.op = "aten::flipud", .gradients = {{"self", "grad.flipud()"}}},
      {.op = "aten::rot90", .gradients = {{"self", "grad.rot90(-k, dims)"}}},
      {.op = "aten::roll", .gradients = {{"self", "grad.roll(recompute.negated(shifts), dims)"}}},
      {.op = "aten::tril", .gradients = {{"self", "grad.tril(diagonal)"}}},
      {.op = "aten::triu", .gradients = {{"self", "grad.triu(diagonal)"}}},
      {.op = "aten::diag_embed", .gradients = {{"self", "grad.diagonal(offset, dim1, dim2)"}}},
      {.op = "aten::pixel_shuffle",
       .gradients = {{"self", "torch.pixel_unshuffle(grad, upscale_factor)"}}},
      {.op = "aten::pixel_unshuffle",
       .gradients = {{"self", "torch.pixel_shuffle(grad, downscale_factor)"}}},
      {.op = "aten::channel_shuffle",
       .gradients = {{"self", "torch.channel_shuffle(grad, grad.size(1) // groups)"}}},
  };
  rules.insert(rules.end(), more.begin(), more.end());
}

// Operators that read a part of their input. The gradient is zero elsewhere; eager's kernels make
// it.
void add_parts(std::vector<Rule>& rules) {
  const std::vector<Rule> more = {
      {.op = "aten::select.int",
       .gradients = {{"self", "torch.select_backward(grad, self.size(), dim, index)"}}},
      {.op = "aten::slice.Tensor", .gradients = {{"self", R"(
    if start is None:
        first = 0
    else:
        first = start
    if end is None:
        last = 9223372036854775807
    else:
        last = end
    return torch.slice_backward(grad, self.size(), dim, first, last, step))"}}},
      {.op = "aten::narrow", .gradients = {{"self", R"(
    if start < 0:
        first = start + self.size(dim)
    else:
        first = start
    return torch.slice_backward(grad, self.size(), dim, first, first + length, 1))"}}},
      {.op = "aten::diagonal",
       .gradients = {{"self", "torch.diagonal_backward(grad, self.size(), offset, dim1, dim2)"}}},
      {.op = "aten::as_strided",
       .gradients = {{"self",
                      "recompute.as_strided_backward(grad, self.size(), self.stride(), "
                      "self.storage_offset(), size, stride, storage_offset)"}}},
      {.op = "aten::unfold",
       .gradients = {{"self", "torch.unfold_backward(grad, self.size(), dimension, size, step)"}}},
      {.op = "aten::im2col",
       .gradients = {{"self",
                      "torch.col2im(grad, [self.size(-2), self.size(-1)], kernel_size, dilation, "
                      "padding, stride)"}}},
      {.op = "aten::col2im",
       .gradients = {{"self", "torch.im2col(grad, kernel_size, dilation, padding, stride)"}}},
  };
  rules.insert(rules.end(), more.begin(), more.end());
}

void add_lists(std::vector<Rule>& rules) {
  const char* cat =
      "recompute.cat_backward(grad, recompute.sizes(tensors), recompute.dtypes(tensors), dim, 0)";
  for (const char* op : {"aten::cat", "aten::concat", "aten::concatenate"}) {
    rules.push_back({.op = op, .gradients = {{"tensors", cat}}});
  }
  for (const char* op : {"aten::split.Tensor", "aten::unsafe_split.Tensor"}) {
    rules.push_back(
        {.op = op,
         .gradients = {{"self", "recompute.split_backward(grads, self.size(), split_size, dim)"}}});
  }
  for (const char* op : {"aten::chunk", "aten::unsafe_chunk"}) {
    rules.push_back({.op = op,
                     .gradients = {{"self",
                                    "recompute.split_backward(grads, self.size(), "
                                    "(self.size(dim) + chunks - 1) // chunks, dim)"}}});
  }
  for (const char* op : {"aten::split_with_sizes", "aten::unsafe_split_with_sizes"}) {
    rules.push_back({.op = op,
                     .gradients = {{"self",
                                    "recompute.split_with_sizes_backward(grads, self.size(), "
                                    "split_sizes, dim)"}}});
  }
  const std::vector<Rule> more = {
      {.op = "aten::stack",
       .gradients = {{"tensors",
                      "recompute.stack_backward(grad, recompute.dtypes(tensors), dim)"}}},
      {.op = "aten::hstack",
       .gradients = {{"tensors",
                      "recompute.cat_backward(grad, recompute.sizes(tensors), "
                      "recompute.dtypes(tensors), min(grad.dim() - 1, 1), 1)"}}},
      {.op = "aten::vstack",
       .gradients = {{"tensors",
                      "recompute.cat_backward(grad, recompute.sizes(tensors), "
                      "recompute.dtypes(tensors), 0, 2)"}}},
      {.op = "aten::broadcast_tensors",
       .gradients = {{"tensors",
                      "recompute.broadcast_tensors_backward(grads, recompute.sizes(tensors))"}}},
      {.op = "aten::split.sizes",
       .gradients = {{"self",
                      "recompute.split_with_sizes_backward(grads, self.size(), split_size, "
                      "dim)"}}},
      {.op = "aten::split",
       .gradients = {{"self",
                      "recompute.split_with_sizes_backward(grads, self.size(), split_sizes, "
                      "dim)"}}},
      // Eager PyTorch sums zero-filled gradients of slices. The parts do not overlap, so
      // concatenating them gives the same numbers.
      {.op = "aten::tensor_split.sections",
       .gradients = {{"self", "recompute.tensor_split_backward(grads, self.size(), dim)"}}},
      {.op = "aten::tensor_split.indices",
       .gradients = {{"self",
                      "recompute.tensor_split_indices_backward(grads, self.size(), indices, "
                      "dim)"}}},
      {.op = "aten::unbind.int", .gradients = {{"self", "recompute.unbind_backward(grads, dim)"}}},
  };
  rules.insert(rules.end(), more.begin(), more.end());
}

// Where the gradient of a reflection or replication is differentiated again, that of self is zeros
// in eager, and not None.
void add_repetitions_and_padding(std::vector<Rule>& rules) {
  const std::vector<Rule> more = {
      {.op = "aten::repeat",
       .gradients = {{"self", "recompute.repeat_backward(grad, repeats, self.size())"}}},
      {.op = "aten::tile",
       .gradients = {{"self", "recompute.repeat_backward(grad, dims, self.size())"}}},
      {.op = "aten::repeat_interleave.self_int",
       .gradients = {{"self",
                      "recompute.repeat_interleave_backward(grad, self.size(), repeats, dim)"}}},
      {.op = "aten::constant_pad_nd",
       .gradients = {{"self", "torch.constant_pad_nd(grad, recompute.negated(pad), 0)"}}},
      {.op = "aten::pad",
       .gradients = {{"self", R"(
    if mode == "constant":
        return torch.constant_pad_nd(grad, recompute.negated(pad), 0)
    return recompute.pad_backward(grad, self.size(), pad, mode))",
                      R"(
    if mode == "constant":
        return torch.constant_pad_nd(grad, recompute.negated(pad), 0)
    if mode == "circular":
        return recompute.pad_backward(grad, self.size(), pad, mode)
    return recompute.pad_backward_of_self(grad, self, pad, mode))"}}},
  };
  rules.insert(rules.end(), more.begin(), more.end());
  for (const char* rank : {"1d", "2d", "3d"}) {
    for (const char* mode : {"reflect", "replicate"}) {
      const std::string name = mode == std::string("reflect") ? "reflection" : "replication";
      rules.push_back({.op = "aten::" + name + "_pad" + rank,
                       .gradients = {{"self",
                                      "recompute.pad_backward(grad, self.size(), padding, \"" +
                                          std::string(mode) + "\")",
                                      "recompute.pad_backward_of_self(grad, self, padding, \"" +
                                          std::string(mode) + "\")"}}});
    }
  }
}

}  // namespace

std::vector<Rule> shape_rules() {
  std::vector<Rule> rules;
  add_rearrangements(rules);
  add_parts(rules);
  add_lists(rules);
  add_repetitions_and_padding(rules);
  return rules;
}

}  // namespace aten_recompute
