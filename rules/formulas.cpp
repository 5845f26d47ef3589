// Rules of operators that only formulas of other rules run. They are for gradients of gradients
// that a method asks for (passes/autodiff/expand_gradients.h). Where an operator's own argument is
// called `grad`, the gradient of its result is `grad0`.
#include "rules/families.h"

namespace aten_recompute {

namespace {

// Returns `product`, times the factor alpha of a matrix product.
std::string times_alpha(const std::string& product) {
  return "    product = " + product +
         "\n"
         "    return product if recompute.is_one(alpha) else product * alpha";
}

std::vector<Rule> matrix_formulas() {
  return {
      {.op = "aten_recompute::einsum_backward",
       .gradients = {{"gradient, tensors",
                      "recompute.einsum_double_backward(grads, gradient, equation, tensors, path, "
                      "has_result, needs_each_tensors)"}}},
      {.op = "aten_recompute::linear_grad_bias",
       .gradients = {{"gradient", "grad.expand(gradient.size())"}}},
      {.op = "aten_recompute::linear_grad_weight",
       .gradients = {{"gradient", "torch.linear(input, grad)"},
                     {"input",
                      "recompute.linear_grad_input(gradient, grad, input.size(), input.stride(), "
                      "True, True)"}}},
      {.op = "aten_recompute::linear_grad_input",
       .gradients = {{"weight",
                      "recompute.linear_grad_weight(gradient, grad, weight.size(), "
                      "weight.stride(), True, True)"},
                     {"gradient", "torch.linear(grad, weight)"}}},
      {.op = "aten_recompute::matmul_grad_self",
       .gradients = {{"other",
                      "recompute.matmul_grad_other(gradient, grad, other.size(), other.stride(), "
                      "True)"},
                     {"gradient", "torch.matmul(grad, other)"}}},
      {.op = "aten_recompute::matmul_grad_other",
       .gradients = {{"self",
                      "recompute.matmul_grad_self(gradient, grad, self.size(), self.stride(), "
                      "True)"},
                     {"gradient", "torch.matmul(self, grad)"}}},
      {.op = "aten_recompute::mm_grad_self",
       .gradients = {{"mat2",
                      "recompute.mm_grad_mat2(gradient, grad, mat2.size(), mat2.stride(), alpha)"},
                     {"gradient", times_alpha("torch.mm(grad, mat2)")}}},
      {.op = "aten_recompute::mm_grad_mat2",
       .gradients = {{"mat1",
                      "recompute.mm_grad_self(gradient, grad, mat1.size(), mat1.stride(), alpha)"},
                     {"gradient", times_alpha("torch.mm(mat1, grad)")}}},
  };
}

std::vector<Rule> sums() {
  return {
      {.op = "aten_recompute::reduce_grad",
       .gradients = {{"gradient", "grad.to(gradient.dtype).expand(gradient.size())"}}},
      {.op = "aten_recompute::accumulate", .gradients = {{"acc", "grad"}, {"other", "grad"}}},
  };
}

std::vector<Rule> lists() {
  return {
      {.op = "aten_recompute::list_gradient",
       .gradients = {{"gradient", "torch._unwrap_optional(grads[index])"}}},
      {.op = "aten_recompute::accumulate_list",
       .gradients = {{"acc", "grads"}, {"other", "grads"}}},
      {.op = "aten_recompute::optional_list", .gradients = {{"list", "grads"}}},
      {.op = "aten_recompute::cat_backward",
       .gradients = {{"gradient",
                      "recompute.cat_double_backward(grads, sizes, dim, min_rank, "
                      "gradient.dtype)"}}},
      {.op = "aten_recompute::stack_backward",
       .gradients = {{"gradient", "recompute.stack_double_backward(grads, dim, gradient.dtype)"}}},
      {.op = "aten_recompute::split_backward",
       .gradients = {{"gradients", "torch.split(grad, split_size, dim)"}}},
      {.op = "aten_recompute::split_with_sizes_backward",
       .gradients = {{"gradients", "torch.split_with_sizes(grad, split_sizes, dim)"}}},
      {.op = "aten_recompute::tensor_split_backward",
       .gradients = {{"gradients", "torch.tensor_split(grad, len(gradients), dim)"}}},
      {.op = "aten_recompute::tensor_split_indices_backward",
       .gradients = {{"gradients", "torch.tensor_split(grad, indices, dim)"}}},
      {.op = "aten_recompute::unbind_backward",
       .gradients = {{"gradients", "torch.unbind(grad, dim)"}}},
  };
}

std::vector<Rule> indexing() {
  return {
      {.op = "aten_recompute::index_backward",
       .gradients = {{"gradient", "torch.index(grad, indices)"}}},
      {.op = "aten_recompute::index_backward.list",
       .gradients = {{"gradient", "torch.index(grad, indices)"}}},
      {.op = "aten_recompute::gather_backward",
       .gradients = {{"gradient", "torch.gather(grad, dim, index)"}}},
      {.op = "aten_recompute::index_source_gradient",
       .gradients = {{"gradient", "torch.zeros_like(" + layout_of("gradient") +
                                      ").index_add(dim, index, grad, alpha=alpha)"}}},
      {.op = "aten::slice_backward",
       .gradients = {{"grad_output", "torch.slice(grad, dim, start, end, step)"}}},
      {.op = "aten::select_backward",
       .gradients = {{"grad_output", "torch.select(grad, dim, index)"}}},
      {.op = "aten_recompute::norm_backward",
       .gradients = {{"gradient, self, norm",
                      "recompute.norm_double_backward(grad, gradient, self, p, norm, dim)"}}},
      {.op = "aten::conj", .gradients = {{"self", "grad.conj()"}}},
  };
}

// The formulas of derivatives.yaml for the backward operators of activation functions.
std::vector<Rule> activations() {
  return {
      {.op = "aten::threshold_backward",
       .gradients = {{"grad_output", "torch.threshold_backward(grad, self, threshold)"},
                     {"self", "torch.zeros_like(" + layout_of("self") + ")"}}},
      {.op = "aten::tanh_backward",
       .gradients = {{"grad_output", "torch.tanh_backward(grad, output.conj())"},
                     {"output", "grad.conj() * (-2 * output * grad_output)"}}},
      {.op = "aten::sigmoid_backward",
       .gradients = {{"grad_output", "torch.sigmoid_backward(grad, output.conj())"},
                     {"output", "grad.conj() * grad_output * (-2 * output + 1)"}}},
      {.op = "aten::softplus_backward",
       .gradients = {{"grad_output", "torch.softplus_backward(grad, self, beta, threshold)"},
                     {"self",
                      "    x = self * beta\n"
                      "    return torch.sigmoid_backward(grad * grad_output, x.sigmoid()) * "
                      "(x < threshold).type_as(grad) * beta"}}},
      {.op = "aten_recompute::apply_dropout_mask",
       .gradients = {{"x", "recompute.apply_dropout_mask(grad, mask, p)"}}},
  };
}

}  // namespace

std::vector<Rule> formula_rules() {
  auto rules = matrix_formulas();
  for (const auto& more : {sums(), lists(), indexing(), activations()})
    rules.insert(rules.end(), more.begin(), more.end());
  return rules;
}

}  // namespace aten_recompute
