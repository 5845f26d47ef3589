// Rules of losses. `reduction` is 0 for none, 1 for mean, 2 for sum.
#include "rules/families.h"

namespace aten_recompute {
namespace {

// Returns a formula that raises an error, as autograd does, because the argument has no derivative.
GradientFormula without_gradient(const std::string& op, const std::string& argument) {
  return {argument, "recompute.not_differentiable(grad, '" + op + "', '" + argument + "')"};
}

// Lines of TorchScript that reduce `each`, the loss of each element, to `loss`.
const std::string kReduce =
    "    if reduction == 1:\n"
    "        loss = torch.mean(each)\n"
    "    elif reduction == 2:\n"
    "        loss = torch.sum(each)\n"
    "    else:\n"
    "        loss = each\n";

// PyTorch stores the reduced value of some losses in the memory of the elements, so the loss keeps
// all of it alive during the backward. If the reduction is a separate operator (of the same
// kernels), the loss is a tensor of one element.
std::string reduced_loss(const std::string& name, const std::string& arguments) {
  return "    each = torch." + name + "(" + arguments + ")\n" + kReduce + "    return loss";
}

// Lines of TorchScript that undo the reduction of `count` elements: `each` broadcasts to the
// gradients of the elements.
const std::string kUnreduce =
    "    if reduction == 1:\n"
    "        each = grad / count\n"
    "    else:\n"
    "        each = grad\n";

std::vector<Rule> likelihoods() {
  std::vector<Rule> rules = {
      {.op = "aten::cross_entropy_loss",
       .forward = "    logs = torch.log_softmax(self, 1 if self.dim() > 1 else 0)\n"
                  "    loss, weights = recompute.cross_entropy(logs, target, weight, "
                  "reduction, ignore_index, label_smoothing)\n"
                  "    return loss, logs, weights",
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
         .gradients = {without_gradient(op, "weight"),
                       {"self", "recompute.nll_loss_backward(grad, " + layout_of("self") +
                                    ", target, weight, reduction, "
                                    "ignore_index, total)"}}});
  }
  return rules;
}

// The loss is symmetric in self and target: exchanging them exchanges the gradients.
Rule regression(const std::string& name, const std::string& extra) {
  auto gradient = [&](const std::string& one, const std::string& two) -> GradientFormula {
    return {one, "recompute.reduce_grad(torch." + name + "_backward(grad, " + one + ", " + two +
                     ", reduction" + extra + "), " + one + ".size(), " + one + ".dtype)"};
  };
  return {.op = "aten::" + name,
          .forward = reduced_loss(name, "self, target, 0" + extra),
          .gradients = {gradient("target", "self"), gradient("self", "target")}};
}

std::vector<Rule> regressions() {
  return {
      regression("mse_loss", ""),
      regression("smooth_l1_loss", ", beta"),
      regression("huber_loss", ", delta"),
      {.op = "aten::l1_loss",
       .forward = "    signed = self - target\n"
                  "    each = signed.abs()\n" +
                  kReduce + "    return loss, signed, each.numel()",
       .extras = {"difference", "count: int"},
       .gradients = {{"target",
                      kUnreduce +
                          "    return recompute.reduce_grad(torch.neg(each * difference.sgn()), "
                          "target.size(), target.dtype)"},
                     {"self",
                      kUnreduce +
                          "    return recompute.reduce_grad(each * difference.sgn(), self.size(), "
                          "self.dtype)"}}},
  };
}

std::vector<Rule> probabilities() {
  return {
      // With log_target, the loss is exp(target) * (target - self), otherwise xlogy(target, target)
      // - target * self.
      {.op = "aten::kl_div",
       .forward = "    if log_target:\n"
                  "        signed = target - self\n"
                  "        each = target.exp() * signed\n"
                  "    else:\n"
                  "        signed = self\n"
                  "        each = torch.xlogy(target, target) - target * self\n" +
                  kReduce + "    return loss, signed, each.numel(), each.size()",
       .extras = {"difference", "count: int", "shape: List[int]"},
       .gradients = {{"target",
                      kUnreduce +
                          "    each = each.expand(shape)\n"
                          "    if log_target:\n"
                          "        exponential = target.exp()\n"
                          "        gradient = each * exponential\n"
                          "        gradient = gradient + (each * difference) * exponential\n"
                          "    else:\n"
                          "        gradient = torch.xlogy(each, target).masked_fill("
                          "torch.bitwise_and(target == 0., target <= 0.), 0.)\n"
                          "        gradient = gradient + each * target / target\n"
                          "        gradient = gradient + torch.neg(each) * self\n"
                          "    return recompute.reduce_grad(gradient, target.size(), "
                          "target.dtype)"},
                     {"self", kUnreduce + "    each = each.expand(shape)\n"
                                          "    if log_target:\n"
                                          "        gradient = torch.neg(each * target.exp())\n"
                                          "    else:\n"
                                          "        gradient = torch.neg(each) * target\n"
                                          "    return recompute.reduce_grad(gradient, self.size(), "
                                          "self.dtype)"}}},
      {.op = "aten::binary_cross_entropy",
       .forward = reduced_loss("binary_cross_entropy", "self, target, weight, 0"),
       .gradients = {without_gradient("aten::binary_cross_entropy", "weight"),
                     {"target",
                      "recompute.binary_cross_entropy_target_backward(grad, self, target, weight, "
                      "reduction)"},
                     {"self",
                      "torch.binary_cross_entropy_backward(grad, self, target, weight, "
                      "reduction)"}}},
      {.op = "aten::binary_cross_entropy_with_logits",
       .gradients =
           {without_gradient("aten::binary_cross_entropy_with_logits", "weight"),
            without_gradient("aten::binary_cross_entropy_with_logits", "pos_weight"),
            {"target",
             "recompute.binary_cross_entropy_with_logits_target_backward(grad, self, target, "
             "weight, pos_weight, reduction)"},
            {"self",
             "recompute.binary_cross_entropy_with_logits_backward(grad, self, target, weight, "
             "pos_weight, reduction)"}}},
      {.op = "aten::soft_margin_loss",
       .forward = reduced_loss("soft_margin_loss", "self, target, 0"),
       .gradients = {without_gradient("aten::soft_margin_loss", "target"),
                     {"self", "torch.soft_margin_loss_backward(grad, self, target, reduction)"}}},
  };
}

// Losses that ATen composes. Several of their parts read one operand, whose gradients eager adds to
// those of other readers one by one.
std::vector<Rule> composed_losses() {
  return {
      // ATen makes the second operand of a difference or a sum first.
      {.op = "aten::poisson_nll_loss",
       .forward = "    if log_input:\n"
                  "        scaled = target * input\n"
                  "        each = torch.exp(input) - scaled\n"
                  "    else:\n"
                  "        each = input - target * torch.log(input + eps)\n"
                  "    if full:\n"
                  "        half = torch.log(target * 6.283185307179586) * 0.5\n"
                  "        stirling = (target * torch.log(target) - target) + half\n"
                  "        each = each + stirling.masked_fill(target <= 1, 0)\n" +
                  kReduce + "    return loss"},
      {.op = "aten::triplet_margin_loss",
       .forward = "    dims = [recompute.triplet_dims(anchor.dim(), positive.dim(), "
                  "negative.dim()) - 1]\n"
                  "    near = torch.norm(anchor - positive + eps, p, dims, False)\n"
                  "    far = torch.norm(anchor - negative + eps, p, dims, False)\n"
                  "    if swap:\n"
                  "        far = torch.minimum(far, torch.norm(positive - negative + eps, p, dims, "
                  "False))\n"
                  "    each = torch.clamp_min((near + margin) - far, 0)\n" +
                  kReduce + "    return loss"},
      // ATen adds a float of 1e-12.
      {.op = "aten::cosine_embedding_loss",
       .forward = "    dims = [recompute.cosine_embedding_dim(input1.size(), input2.size(), "
                  "target.size())]\n"
                  "    product = (input1 * input2).sum(dims)\n"
                  "    square1 = (input1 * input1).sum(dims) + 9.999999960041972e-13\n"
                  "    square2 = (input2 * input2).sum(dims) + 9.999999960041972e-13\n"
                  "    cosine = product / (square1 * square2).sqrt()\n"
                  "    similar = 1 - cosine\n"
                  "    different = torch.clamp_min(cosine - margin, 0)\n"
                  "    zeros = torch.zeros_like(cosine)\n"
                  "    each = torch.where(target == 1, similar, zeros)\n"
                  "    each = each + torch.where(target == -1, different, zeros)\n" +
                  kReduce + "    return loss"},
  };
}

}  // namespace

std::vector<Rule> loss_rules() {
  auto rules = likelihoods();
  for (auto family : {&regressions, &probabilities, &composed_losses}) {
    for (auto& rule : family())
      rules.push_back(std::move(rule));
  }
  return rules;
}

}  // namespace aten_recompute
