// Convolutions. The operator itself stays: which kernel it takes does not depend on autograd.
#include "passes/rules/rule.h"

namespace aten_recompute {
namespace {

Rule convolution(const std::string& op, const std::string& transposed,
                 const std::string& output_padding) {
  return {.op = op,
          .gradients = {{"input, weight, bias",
                         "recompute.convolution_backward(grad, input, weight, stride, padding, "
                         "dilation, " +
                             transposed + ", " + output_padding +
                             ", groups, [needs_input, needs_weight, needs_bias])"}}};
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
         .gradients = {{"input, weight, bias",
                        "recompute.convolution_mode_backward(grad, input, weight, stride, padding, "
                        "dilation, groups, [needs_input, needs_weight, needs_bias])"}}});
    rules.push_back(convolution("aten::conv_transpose" + n + (spatial == 1 ? "" : ".input"), "True",
                                "output_padding"));
  }
  rules.push_back(convolution("aten::convolution", "transposed", "output_padding"));
  rules.push_back(convolution("aten::_convolution", "transposed", "output_padding"));
  return rules;
}

}  // namespace aten_recompute
