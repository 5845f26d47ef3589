// Rules of convolutions. The forward operator does not change, because its choice of kernel does
// not depend on autograd.
#include "rules/families.h"

namespace aten_recompute {
namespace {

// The backward is split into two calls. Only the gradients of weight and bias read the input, which
// is then free before the gradient of the input, often as large, is made. ATen's kernels compute
// the two separately anyway.
std::vector<GradientFormula> gradients(const std::string& op, const std::string& parameters) {
  const auto call = [&](const std::string& input, const std::string& mask) {
    return "recompute." + op + "(grad, " + input + ", weight, " + parameters + ", [" + mask + "])";
  };
  return {{"weight, bias", "    unused, grad_weight, grad_bias = " +
                               call("input", "False, needs_weight, needs_bias") +
                               "\n    return grad_weight, grad_bias"},
          {"input", call(layout_of("input"), "True, False, False") + "[0]"}};
}

Rule convolution(const std::string& op, const std::string& transposed,
                 const std::string& output_padding) {
  return {
      .op = op,
      .gradients = gradients("convolution_backward", "stride, padding, dilation, " + transposed +
                                                         ", " + output_padding + ", groups")};
}

}  // namespace

std::vector<Rule> convolution_rules() {
  std::vector<Rule> rules;
  int spatial = 0;
  for (const char* zeros : {"[0]", "[0, 0]", "[0, 0, 0]"}) {
    const auto n = std::to_string(++spatial) + "d";
    rules.push_back(convolution("aten::conv" + n, "False", zeros));
    rules.push_back(
        {.op = "aten::conv" + n + ".padding",
         .gradients = gradients("convolution_mode_backward", "stride, padding, dilation, groups")});
    rules.push_back(convolution("aten::conv_transpose" + n + (spatial == 1 ? "" : ".input"), "True",
                                "output_padding"));
  }
  rules.push_back(convolution("aten::convolution", "transposed", "output_padding"));
  rules.push_back(convolution("aten::_convolution", "transposed", "output_padding"));
  return rules;
}

}  // namespace aten_recompute
