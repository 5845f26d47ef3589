// Rules of activation functions. Most have a backward operator in ATen.
#include "rules/families.h"

namespace aten_recompute {

std::vector<Rule> activation_rules() {
  auto rule = [](const char* op, const char* gradient) -> Rule {
    return {.op = op, .gradients = {{"self", gradient}}};
  };
  // `of_self` reads the argument, as eager does. Differentiated again, that does not require grad.
  auto rule_by_result = [](const char* op, const char* gradient, const char* of_self) -> Rule {
    return {.op = op,
            .gradients = {
                {.inputs = "self", .body = gradient, .again = of_self, .is_by_result = true}}};
  };
  return {
      rule("aten::relu", "torch.threshold_backward(grad, result, 0)"),
      // The result is on a bound exactly where the gradient is 0, so formulas may read it in place
      // of the argument. The next layer usually keeps the result anyway.
      rule_by_result("aten::relu6", "torch.hardtanh_backward(grad, result, 0, 6)",
                     "torch.hardtanh_backward(grad, self, 0, 6)"),
      rule_by_result(
          "aten::hardtanh",
          "torch.hardtanh_backward(grad, result if "
          "recompute.result_shows_clamping(min_val, max_val) else self, min_val, max_val)",
          "torch.hardtanh_backward(grad, self, min_val, max_val)"),
      rule("aten::threshold", "torch.threshold_backward(grad, self, threshold)"),
      // If the slope is positive, the result has the sign of the argument.
      rule_by_result("aten::leaky_relu",
                     "torch.leaky_relu_backward(grad, result if negative_slope > 0 else self, "
                     "negative_slope, False)",
                     "torch.leaky_relu_backward(grad, self, negative_slope, False)"),
      // The in-place forms compute their gradient from the result, which rounds differently.
      rule("aten_recompute::elu_in_place",
           "torch.elu_backward(grad, alpha, scale, input_scale, True, result)"),
      rule("aten_recompute::selu_in_place",
           "torch.elu_backward(grad, 1.6732632423543772848170429916717, "
           "1.0507009873554804934193349852946, 1, True, result)"),
      rule("aten_recompute::celu_in_place",
           "torch.elu_backward(grad, alpha, 1, 1.0 / recompute.single_precision(alpha), True, "
           "result)"),
      rule("aten::elu", "torch.elu_backward(grad, alpha, scale, input_scale, False, self)"),
      // selu is elu with constants from the paper (arXiv:1706.02515), rounded as in ATen.
      rule("aten::selu",
           "torch.elu_backward(grad, 1.6732632423543772848170429916717, "
           "1.0507009873554804934193349852946, 1, False, self)"),
      rule("aten::celu",
           "torch.elu_backward(grad, alpha, 1, 1.0 / recompute.single_precision(alpha), False, "
           "self)"),
      rule("aten::gelu", "torch.gelu_backward(grad, self, approximate=approximate)"),
      {.op = "aten::silu",
       .gradients = {{"self", "torch.silu_backward(grad, self)",
                      "    sigmoid = torch.sigmoid(self)\n"
                      "    return grad * sigmoid * (1 + self * (1 - sigmoid))"}}},
      {.op = "aten::mish",
       .gradients =
           {{"self", "torch.mish_backward(grad, self)",
             "    tanh = torch.tanh(torch.softplus(self))\n"
             "    return grad * (tanh + self * torch.sigmoid(self) * (1 - tanh * tanh))"}}},
      rule("aten::hardswish", "torch.hardswish_backward(grad, self)"),
      rule("aten::hardsigmoid", "torch.hardsigmoid_backward(grad, self)"),
      rule("aten::softplus", "torch.softplus_backward(grad, self, beta, threshold)"),
      rule("aten::softshrink", "torch.softshrink_backward(grad, self, lambd)"),
      rule("aten::hardshrink", "torch.hardshrink_backward(grad, self, lambd)"),
      rule("aten::glu", "torch.glu_backward(grad, self, dim)"),
      {.op = "aten::log_sigmoid",
       .forward = "torch.log_sigmoid_forward(self)",
       .extras = {"buffer"},
       .gradients = {{"self", "torch.log_sigmoid_backward(grad, self, buffer)"}}},
      // What the rule above leaves where a gradient is asked for inside of the method.
      {.op = "aten::log_sigmoid_forward",
       .gradients = {{"self", "torch.log_sigmoid_backward(grad, self, result1)"}}},
      // The weight of each channel is broadcast to self as [1, channels, 1, ...].
      {.op = "aten::prelu",
       .gradients = {{"weight, self",
                      "    if self.dim() == weight.dim():\n"
                      "        shape = weight.size()\n"
                      "    elif self.dim() > 1:\n"
                      "        shape = [1, weight.numel()] + [1] * (self.dim() - 2)\n"
                      "    else:\n"
                      "        shape = [1] * self.dim()\n"
                      "    grad_self, grad_weight = torch._prelu_kernel_backward(grad, self, "
                      "weight.reshape(shape))\n"
                      "    return recompute.reduce_grad(grad_weight, shape, weight.dtype)"
                      ".reshape(weight.size()), grad_self"}}},
  };
}

}  // namespace aten_recompute
