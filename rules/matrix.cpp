// Rules of matrix products. Where autograd gives a gradient the layout of its argument, so do these
// rules: rules/kernels/matrix.cpp.
#include "rules/families.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

namespace aten_recompute {

namespace {

// Returns the gradient of the term that addmm and similar operators add to the product, times beta.
GradientFormula added_term() {
  return {"self",
          "recompute.reduce_grad(grad if recompute.is_one(beta) else grad * recompute.conj(beta), "
          "self.size(), self.dtype)"};
}

// outer(self, vec2), also called ger, is self.reshape([n, 1]) * vec2.
Rule outer_product(const std::string& op) {
  return {.op = op,
          .gradients =
              {{"self",
                "recompute.reduce_grad(grad * vec2.conj(), [self.size(0), 1], self.dtype)"
                ".reshape(self.size())"},
               {"vec2",
                "recompute.reduce_grad(grad * self.reshape([self.size(0), 1]).conj(), vec2.size(), "
                "vec2.dtype)"}},
          .gradients_in_reverse = true};
}

// Returns TorchScript for an operand whose elements are read on a condition only.
std::string read_if(const std::string& condition, const std::string& operand) {
  return "(" + operand + " if " + condition + " else " + layout_of(operand) + ")";
}

// Returns what takes the place of a gradient of matmul(x, x): of the two that eager adds to the
// gradient of x, the first or the second.
std::string square_gradient(bool is_first) {
  return std::string("recompute.matmul_grad_of_square(grad, self, self.size(), self.stride(), ") +
         (is_first ? "True)" : "False)");
}

// Writes a power of a matrix as ATen computes it (LinearAlgebra.cpp): the third as a product of
// three, others by squaring, from the lowest bit of n to the highest.
std::string compose_power(const torch::jit::Node* node) {
  const auto n = torch::jit::constant_as<int64_t>(node->input(1));
  if (!n || *n < 2)
    return "";
  if (*n == 3)
    return "    return torch.matmul(torch.matmul(self, self), self)";
  std::string text = "    square = self\n";
  bool has_result = false;
  for (int64_t left = *n; left > 0; left /= 2) {
    if (left != *n)
      text += "    square = torch.matmul(square, square)\n";
    if (left % 2 == 0)
      continue;
    text += has_result ? "    result = torch.matmul(result, square)\n" : "    result = square\n";
    has_result = true;
  }
  return text + "    return result";
}

// On other devices its products are not computed in TensorFloat-32, whatever is set.
Rule power(const std::string& op) {
  return {.op = op, .compose = &compose_power, .on_cpu_only = true};
}

}  // namespace

std::vector<Rule> matrix_rules() {
  return {
      {.op = "aten::einsum",
       .gradients = {{"tensors", R"(
    if len(needs_each_tensors) == 2:
        first, second = recompute.einsum_pair_backward(
            grad, equation, factors_of_tensors[0], factors_of_tensors[1],
            needs_each_tensors[0], needs_each_tensors[1])
        gradients = [first, second]
    else:
        gradients = recompute.einsum_backward(
            grad, equation, factors_of_tensors, path, needs_each_tensors)
    return gradients)"}},
       .gradients_in_reverse = true},
      {.op = "aten::tensordot",
       .gradients = {{"self, other", "recompute.tensordot_backward(grad, " +
                                         read_if("needs_other", "self") + ", " +
                                         read_if("needs_self", "other") +
                                         ", dims_self, dims_other, needs_self, needs_other)"}},
       .gradients_in_reverse = true},
      {.op = "aten::bilinear", .forward = R"(
    flat = torch._trilinear(input1.reshape([-1, input1.size(-1)]), weight,
                            input2.reshape([-1, input2.size(-1)]), [1, 3], [0], [1, 2], [2, 3])
    result = flat.reshape(input1.size()[:-1] + [weight.size(0)])
    if bias is not None:
        result = result + bias
    return result)"},
      power("aten::linalg_matrix_power"),
      power("aten::matrix_power"),
      {.op = "aten::_trilinear",
       .gradients = {{"i1", "torch._trilinear(grad, i2, i3, sumdim, expand2, expand3, expand1)"},
                     {"i2", "torch._trilinear(i1, grad, i3, expand1, sumdim, expand3, expand2)"},
                     {"i3", "torch._trilinear(i1, i2, grad, expand1, expand2, sumdim, expand3)"}}},
      {.op = "aten::linear",
       .forward = "recompute.linear(input, weight, bias, requires_input, requires_weight)",
       .gradients = {{"bias",
                      "recompute.linear_grad_bias(grad, recompute.size_of(bias), "
                      "recompute.linear_flattens(input, bias))"},
                     {"weight",
                      "recompute.linear_grad_weight(grad, input, weight.size(), weight.stride(), "
                      "recompute.linear_flattens(input, bias), requires_input)"},
                     {"input",
                      "recompute.linear_grad_input(grad, weight, input.size(), input.stride(), "
                      "recompute.linear_flattens(input, bias), requires_weight)"}}},
      {.op = "aten::matmul",
       .forward = "recompute.matmul(self, other, requires_self, requires_other)",
       .gradients = {{.inputs = "other",
                      .body = "recompute.matmul_grad_other(grad, self, other.size(), "
                              "other.stride(), requires_self)",
                      .of_square = square_gradient(false)},
                     {.inputs = "self",
                      .body = "recompute.matmul_grad_self(grad, other, self.size(), self.stride(), "
                              "requires_other)",
                      .of_square = square_gradient(true)}}},
      {.op = "aten::mm",
       .gradients = {{"mat2", "recompute.mm_grad_mat2(grad, self, mat2.size(), mat2.stride(), 1)"},
                     {"self",
                      "recompute.mm_grad_self(grad, mat2, self.size(), self.stride(), 1)"}}},
      {.op = "aten::bmm",
       .gradients = {{"mat2", "torch.bmm(self.transpose(1, 2).conj(), grad)"},
                     {"self", "torch.bmm(grad, mat2.transpose(1, 2).conj())"}}},
      {.op = "aten::addmm",
       .gradients = {added_term(),
                     {"mat2",
                      "recompute.mm_grad_mat2(grad, mat1, mat2.size(), mat2.stride(), alpha)"},
                     {"mat1",
                      "recompute.mm_grad_self(grad, mat2, mat1.size(), mat1.stride(), alpha)"}}},
      {.op = "aten::baddbmm",
       .gradients =
           {added_term(),
            {"batch2",
             "    product = torch.bmm(batch1.transpose(1, 2).conj(), grad)\n"
             "    return product if recompute.is_one(alpha) else product * recompute.conj(alpha)"},
            {"batch1",
             "    product = torch.bmm(grad, batch2.transpose(1, 2).conj())\n"
             "    return product if recompute.is_one(alpha) else product * "
             "recompute.conj(alpha)"}}},
      {.op = "aten::addbmm",
       .gradients =
           {added_term(),
            {"batch2",
             "    batched = grad.unsqueeze(0).expand([batch1.size(0), batch1.size(1), "
             "batch2.size(2)])\n"
             "    product = torch.bmm(batch1.transpose(1, 2).conj(), batched)\n"
             "    return product if recompute.is_one(alpha) else product * recompute.conj(alpha)"},
            {"batch1",
             "    batched = grad.unsqueeze(0).expand([batch1.size(0), batch1.size(1), "
             "batch2.size(2)])\n"
             "    product = torch.bmm(batched, batch2.transpose(1, 2).conj())\n"
             "    return product if recompute.is_one(alpha) else product * "
             "recompute.conj(alpha)"}}},
      {.op = "aten::mv",
       .gradients = {{"self", "torch.ger(grad, vec.conj())"},
                     {"vec", "torch.mv(self.conj().t(), grad)"}}},
      {.op = "aten::addmv",
       .gradients =
           {added_term(),
            {"mat",
             "    product = torch.ger(grad, vec.conj())\n"
             "    return product if recompute.is_one(alpha) else product * recompute.conj(alpha)"},
            {"vec",
             "    product = torch.mv(mat.t().conj(), grad)\n"
             "    return product if recompute.is_one(alpha) else product * "
             "recompute.conj(alpha)"}}},
      {.op = "aten::addr",
       .gradients =
           {added_term(),
            {"vec1",
             "    product = torch.mv(grad, vec2.conj())\n"
             "    return product if recompute.is_one(alpha) else product * recompute.conj(alpha)"},
            {"vec2",
             "    product = torch.mv(grad.t(), vec1.conj())\n"
             "    return product if recompute.is_one(alpha) else product * "
             "recompute.conj(alpha)"}}},
      {.op = "aten::dot",
       .gradients = {{"self", "grad * tensor.conj()"}, {"tensor", "grad * self.conj()"}}},
      {.op = "aten::vdot",
       .gradients = {{"self", "grad.conj() * other"}, {"other", "grad * self"}}},
      outer_product("aten::outer"),
      outer_product("aten::ger"),
  };
}

}  // namespace aten_recompute
