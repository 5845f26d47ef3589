// Rules of operators that only formulas of other rules run. They are for gradients of gradients
// that a method asks for (passes/autodiff/expand_gradients.h).
#include "rules/families.h"

namespace aten_recompute {

namespace {

// Returns `product`, times the factor alpha of a matrix product.
std::string times_alpha(const std::string& product) {
  return "    product = " + product +
         "\n"
         "    return product if recompute.is_one(alpha) else product * alpha";
}

// Returns the formula for the gradient of a backward that computes gradients of two operands of a
// product, of which either may not have been needed. `product` is that of both in TorchScript, with
// FIRST and SECOND for them.
std::string product_of_gradients(const std::string& product, const std::string& first,
                                 const std::string& second) {
  const auto with = [&](const std::string& a, const std::string& b) {
    auto text = product;
    text.replace(text.find("FIRST"), 5, a);
    return text.replace(text.find("SECOND"), 6, b);
  };
  return "    if has_" + first +
         " and grad1 is not None:\n        of_gradient = " + with("grad", second) + " + " +
         with(first, "grad1") + "\n    elif has_" + first +
         ":\n        of_gradient = " + with("grad", second) +
         "\n    else:\n        of_gradient = " + with(first, "torch._unwrap_optional(grad1)") +
         "\n    return of_gradient";
}

// Returns the formula for the gradient of one operand of such a backward, which only the gradient
// of the other operand depends on. `has` says whether this was computed, `backward` is the
// backward of it.
std::string through_other(const std::string& has, const std::string& operand,
                          const std::string& backward) {
  return "    if " + has + ":\n        of_operand = " + backward +
         "\n    else:\n        of_operand = torch.zeros_like(" + layout_of(operand) +
         ")\n    return of_operand";
}

std::vector<Rule> contractions() {
  const std::string dims = ", dims_self, dims_other";
  return {
      {.op = "aten_recompute::einsum_pair_backward",
       .gradients = {{"gradient", product_of_gradients("torch.einsum(equation, [FIRST, SECOND])",
                                                       "first", "second")},
                     {"first",
                      through_other("has_second and grad1 is not None", "first",
                                    "recompute.einsum_pair_backward(gradient, equation, " +
                                        layout_of("first") +
                                        ", torch._unwrap_optional(grad1), True, False)[0]")},
                     {"second", through_other("has_first", "second",
                                              "recompute.einsum_pair_backward(gradient, equation, "
                                              "grad, " +
                                                  layout_of("second") + ", False, True)[1]")}}},
      {.op = "aten_recompute::tensordot_backward",
       .gradients =
           {{"gradient",
             product_of_gradients("torch.tensordot(FIRST, SECOND" + dims + ")", "self", "other")},
            {"self",
             through_other("has_other and grad1 is not None", "self",
                           "recompute.tensordot_backward(gradient, " + layout_of("self") +
                               ", torch._unwrap_optional(grad1)" + dims + ", True, False)[0]")},
            {"other", through_other("has_self", "other",
                                    "recompute.tensordot_backward(gradient, grad, " +
                                        layout_of("other") + dims + ", False, True)[1]")}}},
  };
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
       .gradients = {{"gradient",
                      "recompute.matmul(input, grad.t(), flattened or needs_input, True)"},
                     {"input",
                      "recompute.linear_grad_input(gradient, grad, input.size(), input.stride(), "
                      "True, True)"}}},
      {.op = "aten_recompute::linear_grad_input",
       .gradients = {{"weight",
                      "recompute.linear_grad_weight(gradient, grad, weight.size(), "
                      "weight.stride(), True, True)"},
                     {"gradient",
                      "recompute.matmul(grad, weight.t(), True, flattened or needs_weight)"}}},
      {.op = "aten_recompute::matmul_grad_self",
       .gradients = {{"other",
                      "recompute.matmul_grad_other(gradient, grad, other.size(), other.stride(), "
                      "True)"},
                     {"gradient", "recompute.matmul(grad, other, True, needs_other)"}}},
      {.op = "aten_recompute::matmul_grad_other",
       .gradients = {{"self",
                      "recompute.matmul_grad_self(gradient, grad, self.size(), self.stride(), "
                      "True)"},
                     {"gradient", "recompute.matmul(self, grad, needs_self, True)"}}},
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
                      "recompute.cat_double_backward(grads, sizes, dtypes, dim, min_rank, "
                      "gradient.dtype)"}}},
      {.op = "aten_recompute::cat_double_backward",
       .gradients = {{"gradients", "recompute.cat_backward(grad, sizes, dtypes, dim, min_rank)"}}},
      {.op = "aten_recompute::stack_backward",
       .gradients = {{"gradient",
                      "recompute.stack_double_backward(grads, dtypes, dim, gradient.dtype)"}}},
      {.op = "aten_recompute::stack_double_backward",
       .gradients = {{"gradients", "recompute.stack_backward(grad, dtypes, dim)"}}},
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

// Returns the rule of the backward of a function that is linear between its bounds: the second
// derivative is zero. `arguments` are those of the operator after the first.
Rule of_linear_pieces(const std::string& name, const std::string& gradient,
                      const std::string& arguments) {
  return {.op = "aten::" + name,
          .gradients = {{gradient, "torch." + name + "(grad, " + arguments + ")"},
                        {"self", "torch.zeros_like(" + layout_of("self") + ")"}}};
}

// The formulas of derivatives.yaml for the backward operators of activation functions.
std::vector<Rule> activations() {
  return {
      of_linear_pieces("threshold_backward", "grad_output", "self, threshold"),
      of_linear_pieces("leaky_relu_backward", "grad_output", "self, negative_slope, False"),
      of_linear_pieces("hardtanh_backward", "grad_output", "self, min_val, max_val"),
      of_linear_pieces("hardshrink_backward", "grad_out", "self, lambd"),
      of_linear_pieces("softshrink_backward", "grad_output", "self, lambd"),
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
      {.op = "aten_recompute::multiply_by_noise",
       .gradients = {{"x", "recompute.multiply_by_noise(grad, mask, p)"}}},
  };
}

}  // namespace

std::vector<Rule> formula_rules() {
  auto rules = matrix_formulas();
  for (const auto& more : {contractions(), sums(), lists(), indexing(), activations()})
    rules.insert(rules.end(), more.begin(), more.end());
  return rules;
}

}  // namespace aten_recompute
