#include "rules/families.h"

namespace aten_recompute {
namespace {

// The `_hacked_twin` overloads take Tensor[] where the other overloads take Tensor?[].
void add_index(std::vector<Rule>& rules) {
  for (const char* op : {"aten::index.Tensor", "aten::index.Tensor_hacked_twin"}) {
    rules.push_back(
        {.op = op,
         .gradients = {{"self", "recompute.index_backward(grad, self.size(), indices)"}}});
  }
  for (const char* op : {"aten::index_put", "aten::index_put.hacked_twin"}) {
    rules.push_back(
        {.op = op,
         .gradients = {{"values", reduced("values", "torch.index(grad, indices)")}, {"self", R"(
    if accumulate:
        return grad
    return torch.index_put(grad, indices, grad.new_zeros(values.size()), False))"}}});
  }
}

// The gradients of sums and means depend on the indices only.
Rule scatter_reduce() {
  return {.op = "aten::scatter_reduce.two", .gradients = {{"self, src", R"(
    if reduce == "sum":
        for_self = grad
        for_source = grad.gather(dim, index)
    elif reduce == "mean":
        for_self, for_source = recompute.scatter_mean_backward(
            grad, dim, index, src.size(), include_self)
    elif reduce == "prod":
        for_self, for_source = recompute.scatter_product_backward(
            grad, self, dim, index, src, include_self, result)
    else:
        for_self, for_source = recompute.scatter_extremum_backward(
            grad, self, dim, index, src, result)
    if include_self:
        without_excluded = for_self
    else:
        without_excluded = for_self.scatter(dim, index, 0)
    return without_excluded, for_source)"}}};
}

}  // namespace

std::vector<Rule> indexing_rules() {
  std::vector<Rule> rules = {
      scatter_reduce(),
      {.op = "aten::index_select",
       .gradients = {{"self", "torch.index_select_backward(grad, self.size(), dim, index)"}}},
      {.op = "aten::gather",
       .gradients = {{"self", R"(
    if sparse_grad:
        return torch.gather_backward(grad, )" +
                                  layout_of("self") + R"(, dim, index, sparse_grad)
    return recompute.gather_backward(grad, self.size(), dim, index))"}}},
      {.op = "aten::take_along_dim",
       .gradients = {{"self",
                      "recompute.take_along_dim_backward(grad, self.size(), indices, dim)"}}},
      {.op = "aten::scatter.src",
       .gradients = {{"src", "grad.gather(dim, index)"}, {"self", "grad.scatter(dim, index, 0)"}}},
      {.op = "aten::scatter.value", .gradients = {{"self", "grad.scatter(dim, index, 0)"}}},
      {.op = "aten::scatter_add",
       .gradients = {{"src", "grad.gather(dim, index)"}, {"self", "grad"}}},
      {.op = "aten::index_add",
       .gradients = {{"source",
                      "recompute.index_source_gradient(grad, source.size(), dim, index, alpha)"},
                     {"self", "grad"}}},
      {.op = "aten::index_copy",
       .gradients = {{"source",
                      "recompute.index_source_gradient(grad, source.size(), dim, index, 1)"},
                     {"self", "grad.index_fill(dim, index, 0)"}}},
      // Eager casts the gradient before it adds up what was broadcast.
      {.op = "aten::copy",
       .gradients = {{"self", "torch.zeros_like(grad)"},
                     {"src", reduced("src", "grad.to(src.dtype)")}}},
      {.op = "aten::slice_scatter",
       .gradients = {{"src", reduced("src", "torch.slice(grad, dim, start, end, step).clone()")},
                     {"self", R"(
    part = torch.zeros_like(torch.slice(grad, dim, start, end, step))
    return torch.slice_scatter(grad, part, dim, start, end, step))"}}},
      {.op = "aten::select_scatter",
       .gradients = {{"src", reduced("src", "grad.select(dim, index).clone()")}, {"self", R"(
    part = torch.zeros_like(grad.select(dim, index))
    return torch.select_scatter(grad, part, dim, index))"}}},
      {.op = "aten::diagonal_scatter",
       .gradients = {{"src", reduced("src", "grad.diagonal(offset, dim1, dim2).clone()")},
                     {"self", R"(
    part = torch.zeros_like(grad.diagonal(offset, dim1, dim2))
    return torch.diagonal_scatter(grad, part, offset, dim1, dim2))"}}},
      {.op = "aten::index_fill.int_Scalar",
       .gradients = {{"self", "grad.index_fill(dim, index, 0)"}}},
      {.op = "aten::masked_fill.Scalar",
       .gradients = {{"self", reduced("self", "grad.masked_fill(mask, 0)")}}},
      {.op = "aten::masked_fill.Tensor",
       .gradients = {{"value", reduced("value", "grad.masked_select(mask).sum()")},
                     {"self", reduced("self", "grad.masked_fill(mask, 0)")}}},
      {.op = "aten::masked_select",
       .gradients = {{"self", "recompute.masked_select_backward(grad, self.size(), mask)"}}},
  };
  add_index(rules);
  return rules;
}

}  // namespace aten_recompute
