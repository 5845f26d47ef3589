// Rules of table look-ups.
#include "rules/families.h"

namespace aten_recompute {

namespace {

// `padding` are lines of TorchScript that set `padding`, the index that is skipped, or -1.
Rule embedding_bag(const std::string& overload, const std::string& padding) {
  return {.op = "aten::embedding_bag" + overload,
          .forward = padding + R"(
    order = indices.contiguous()
    starts = offsets.contiguous()
    bags, bag_of, sizes, largest = torch._embedding_bag(
        weight.contiguous(), order, starts, scale_grad_by_freq, mode, sparse, per_sample_weights,
        include_last_offset, padding)
    return bags, bag_of, sizes, largest, order, starts, padding)",
          .extras = {"order", "starts", "padding: int"},
          .gradients = {{"per_sample_weights",
                         "torch._embedding_bag_per_sample_weights_backward(grad, weight, order, "
                         "starts, result1, mode, padding)"},
                        {"weight",
                         "torch._embedding_bag_backward(grad, order, starts, result1, result2, "
                         "result3, weight.size(0), scale_grad_by_freq, mode, sparse, "
                         "per_sample_weights, padding)"}}};
}

}  // namespace

std::vector<Rule> embedding_rules() {
  return {
      embedding_bag("", "    padding = -1"),
      embedding_bag(".padding_idx", R"(
    padding = -1
    if padding_idx is not None:
        padding = recompute.wrapped_index(padding_idx, weight.size(0)))"),
      {.op = "aten::embedding",
       .gradients = {{"weight",
                      "torch.embedding_backward(grad, indices, weight.size(0), padding_idx, "
                      "scale_grad_by_freq, sparse)"}}},
  };
}

}  // namespace aten_recompute
