// Losses. `reduction` is 0 for none, 1 for mean, 2 for sum.
#include "passes/rules/rule.h"

namespace aten_recompute {
namespace {

GradientFormula refused(const std::string& op, const std::string& argument) {
  return {argument, "recompute.not_differentiable(grad, '" + op + "', '" + argument + "')"};
}

const char* const kReduce =
    "    if reduction == 1:\n"
    "        return torch.mean(each)\n"
    "    if reduction == 2:\n"
    "        return torch.sum(each)\n"
    "    return each";

// Gradient of one element of `each`.
const char* const kEach = "(grad / self.numel() if reduction == 1 else grad)";

std::vector<Rule> likelihoods() {
  std::vector<Rule> rules = {
      {.op = "aten::cross_entropy_loss",
       .forward = "    log_probabilities = torch.log_softmax(self, 1 if self.dim() > 1 else 0)\n"
                  "    loss, total = recompute.cross_entropy(log_probabilities, target, weight, "
                  "reduction, ignore_index, label_smoothing)\n"
                  "    return loss, log_probabilities, total",
       .extras = {"log_probabilities", "total"},
       .gradients =
           {{"target",
             "recompute.cross_entropy_target_backward(grad, log_probabilities, target, weight, "
             "reduction, label_smoothing)"},
            {"weight",
             "recompute.cross_entropy_weight_backward(grad, log_probabilities, target, "
             "torch._unwrap_optional(weight), reduction, label_smoothing)"},
            {"self",
             "    inner = recompute.cross_entropy_backward(grad, log_probabilities, target, "
             "weight, reduction, ignore_index, label_smoothing, total)\n"
             "    return torch._log_softmax_backward_data(inner, log_probabilities, "
             "1 if self.dim() > 1 else 0, self.dtype)"}}},
  };
  for (const std::string op : {"aten::nll_loss", "aten::nll_loss2d", "aten::nll_loss_nd"}) {
    rules.push_back(
        {.op = op,
         .forward = "recompute.nll_loss(self, target, weight, reduction, ignore_index)",
         .extras = {"total"},
         .gradients = {refused(op, "weight"),
                       {"self",
                        "recompute.nll_loss_backward(grad, self, target, weight, reduction, "
                        "ignore_index, total)"}}});
  }
  return rules;
}

// Symmetric in self and target, up to the sign that exchanging them brings.
Rule regression(const std::string& op, const std::string& extra) {
  return {.op = op,
          .gradients = {
              {"target", "torch." + op.substr(6) + "_backward(grad, target, self, reduction" +
                             extra + ")"},
              {"self", "torch." + op.substr(6) + "_backward(grad, self, target, reduction" + extra +
                           ")"}}};
}

}  // namespace

std::vector<Rule> loss_rules() {
  auto rules = likelihoods();
  const std::vector<Rule> others = {
      {.op = "aten::mse_loss",
       .gradients =
           {{"target",
             "recompute.reduce_grad(torch.mse_loss_backward(grad, target, self, reduction), "
             "target.size(), target.dtype)"},
            {"self",
             "recompute.reduce_grad(torch.mse_loss_backward(grad, self, target, reduction), "
             "self.size(), self.dtype)"}}},
  };
  rules.insert(rules.end(), others.begin(), others.end());
  return rules;
}

}  // namespace aten_recompute
