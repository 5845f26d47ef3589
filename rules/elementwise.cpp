// Rules of elementwise operators: arithmetic, selections, and functions of one argument.
#include "common/torch_compat.h"
#include "rules/families.h"

namespace aten_recompute {
namespace {

GradientFormula gradient(const std::string& argument, const std::string& formula) {
  return {argument, reduced(argument, formula)};
}

// Returns zeros with the layout of `argument`.
std::string zeros(const std::string& argument) {
  return "torch.zeros_like(" + layout_of(argument) + ")";
}

// Returns the rule of aten::op(Tensor self). The formula may use grad, self and result.
Rule unary(const std::string& op, const std::string& formula) {
  return {.op = op, .gradients = {{"self", formula}}};
}

void append(std::vector<Rule>& rules, std::vector<Rule> more) {
  for (auto& rule : more)
    rules.push_back(std::move(rule));
}

// Returns the expression for 1 / (self^2 + other^2). As in autograd, it is 0 where both are 0.
std::string inverse_square_sum() {
  const std::string sum = "(self * self + other * other)";
  return sum + ".reciprocal().masked_fill(" + sum + " == 0, 0)";
}

const char* const kTimesAlpha =
    "(grad if recompute.is_one(alpha) else grad * recompute.conj(alpha))";
const char* const kMinusTimesAlpha =
    "(torch.neg(grad) if recompute.is_one(alpha) else torch.neg(grad) * recompute.conj(alpha))";

std::vector<Rule> arithmetic() {
  return {
      {.op = "aten::add.Tensor",
       .gradients = {gradient("other", kTimesAlpha), gradient("self", "grad")}},
      {.op = "aten::add.Scalar", .gradients = {gradient("self", "grad")}},
      {.op = "aten::sub.Tensor",
       .gradients = {gradient("other", kMinusTimesAlpha), gradient("self", "grad")}},
      {.op = "aten::sub.Scalar", .gradients = {gradient("self", "grad")}},
      {.op = "aten::rsub.Tensor",
       .gradients = {gradient("other", "grad"), gradient("self", kMinusTimesAlpha)}},
      {.op = "aten::rsub.Scalar", .gradients = {gradient("self", kMinusTimesAlpha)}},
      {.op = "aten::mul.Tensor",
       .gradients = {gradient("other", "grad * self.conj()"),
                     gradient("self", "grad * other.conj()")}},
      {.op = "aten::mul.Scalar", .gradients = {gradient("self", "grad * recompute.conj(other)")}},
      {.op = "aten::div.Tensor",
       .gradients = {gradient("other", "torch.neg(grad) * ((self / other) / other).conj()"),
                     gradient("self", "grad / other.conj()")}},
      {.op = "aten::div.Scalar", .gradients = {gradient("self", "grad / recompute.conj(other)")}},
      {.op = "aten::div.Tensor_mode",
       .gradients = {{"other",
                      "    if rounding_mode is not None:\n"
                      "        return " +
                          zeros("other") +
                          "\n"
                          "    return " +
                          reduced("other", "torch.neg(grad) * ((self / other) / other).conj()")},
                     {"self",
                      "    if rounding_mode is not None:\n"
                      "        return " +
                          zeros("self") +
                          "\n"
                          "    return " +
                          reduced("self", "grad / other.conj()")}}},
      {.op = "aten::div.Scalar_mode",
       .gradients = {{"self",
                      "    if rounding_mode is not None:\n"
                      "        return " +
                          zeros("self") +
                          "\n"
                          "    return " +
                          reduced("self", "grad / recompute.conj(other)")}}},
      {.op = "aten::true_divide.Tensor",
       .gradients = {gradient("other", "torch.neg(grad) * ((self / other) / other).conj()"),
                     gradient("self", "grad / other.conj()")}},
      {.op = "aten::true_divide.Scalar",
       .gradients = {gradient("self", "grad / recompute.conj(other)")}},
      {.op = "aten::remainder.Scalar", .gradients = {gradient("self", "grad")}},
      {.op = "aten::remainder.Tensor",
       .gradients = {gradient("other",
                              "torch.neg(grad) * torch.div(self, other, rounding_mode='floor')"),
                     gradient("self", "grad")}},
      {.op = "aten::fmod.Scalar", .gradients = {gradient("self", "grad")}},
      {.op = "aten::fmod.Tensor",
       .gradients = {gradient("other",
                              "torch.neg(grad) * torch.div(self, other, rounding_mode='trunc')"),
                     gradient("self", "grad")}},
      {.op = "aten::addcmul",
       .gradients = {gradient(
                         "tensor1",
                         "grad * (tensor2 if recompute.is_one(value) else tensor2 * value).conj()"),
                     gradient(
                         "tensor2",
                         "grad * (tensor1 if recompute.is_one(value) else tensor1 * value).conj()"),
                     gradient("self", "grad")}},
      {.op = "aten::addcdiv",
       .gradients = {gradient("tensor1",
                              "grad * (torch.full_like(tensor2, value) / tensor2).conj()"),
                     gradient("tensor2",
                              "torch.neg(grad) * (tensor1 * value / (tensor2 * tensor2)).conj()"),
                     gradient("self", "grad")}},
      {.op = "aten::lerp.Scalar",
       .gradients = {gradient("end", "grad * recompute.conj(weight)"),
                     gradient("self", "grad * (1 - recompute.conj(weight))")}},
      {.op = "aten::lerp.Tensor",
       .gradients = {gradient("weight", "grad * (end - self).conj()"),
                     gradient("end", "grad * weight.conj()"),
                     gradient("self", "grad * (1 - weight).conj()")}},
      {.op = "aten::pow.Tensor_Scalar",
       .gradients = {gradient("self", "(" + zeros("self") +
                                          " if recompute.is_zero(exponent) else "
                                          "grad * (self.pow(exponent - 1) * exponent).conj())")}},
      {.op = "aten::pow.Tensor_Tensor",
       .gradients = {gradient("exponent",
                              "recompute.pow_grad_exponent(grad, self, exponent, result)"),
                     gradient("self",
                              "torch.where(exponent == 0.0, 0, "
                              "grad * (exponent * self.pow(exponent - 1)).conj())")}},
      {.op = "aten::pow.Scalar",
       .gradients = {gradient(
           "exponent", "recompute.pow_grad_exponent_of_scalar(grad, self, exponent, result)")}},
      {.op = "aten::square", .gradients = {gradient("self", "grad * (2 * self.pow(1)).conj()")}},
      {.op = "aten::atan2",
       .gradients = {gradient("other", "grad * torch.neg(self) * " + inverse_square_sum()),
                     gradient("self", "grad * other * " + inverse_square_sum())}},
      {.op = "aten::hypot",
       .gradients = {gradient("other", "grad * other / result"),
                     gradient("self", "grad * self / result")}},
      {.op = "aten::logaddexp",
       .gradients = {gradient("other", "grad / (1 + torch.exp(self - other)).conj()"),
                     gradient("self", "grad / (1 + torch.exp(other - self)).conj()")}},
      {.op = "aten::logaddexp2",
       .gradients = {gradient("other", "grad / (1 + torch.pow(2, self - other))"),
                     gradient("self", "grad / (1 + torch.pow(2, other - self))")}},
      {.op = "aten::xlogy.Tensor",
       .gradients = {gradient("other", "grad * self / other"),
                     gradient("self",
                              "torch.xlogy(grad, other).masked_fill("
                              "torch.bitwise_and(self == 0., other <= 0.), 0.)")}},
  };
}

// clamp() to numbers passes the gradient on where `inside` says so. `greater` and `less` compare
// with the bounds.
std::vector<Rule> clamps_to_numbers(const std::string& greater, const std::string& less) {
  const auto above = "self " + greater + " torch._unwrap_optional(min)";
  const auto below = "self " + less + " torch._unwrap_optional(max)";
  const std::vector<GradientFormula> gradients{gradient("self", "torch.where(inside, grad, 0)")};
  return {
      {.op = "aten::clamp",
       .forward = "    output = torch.clamp(self, min, max)\n"
                  "    if min is None:\n"
                  "        return output, " +
                  below +
                  "\n"
                  "    if max is None:\n"
                  "        return output, " +
                  above +
                  "\n"
                  "    return output, torch.bitwise_and(" +
                  above + ", " + below + ")",
       .extras = {"inside"},
       .gradients = gradients},
      {.op = "aten::clamp_min",
       .forward = "    return torch.clamp_min(self, min), self " + greater + " min",
       .extras = {"inside"},
       .gradients = gradients},
      {.op = "aten::clamp_max",
       .forward = "    return torch.clamp_max(self, max), self " + less + " max",
       .extras = {"inside"},
       .gradients = gradients},
  };
}

// Before PyTorch 2.15: one of two equal elements gets all of the gradient.
[[maybe_unused]] std::vector<Rule> selections_that_choose() {
  auto rules = clamps_to_numbers(">=", "<=");
  const auto add = [&](Rule rule) { rules.push_back(std::move(rule)); };
  add({.op = "aten::clamp_min.Tensor",
       .gradients = {gradient("min", "torch.where(self < min, grad, 0)"),
                     gradient("self", "torch.where(self >= min, grad, 0)")}});
  add({.op = "aten::clamp_max.Tensor",
       .gradients = {gradient("max", "torch.where(self > max, grad, 0)"),
                     gradient("self", "torch.where(self <= max, grad, 0)")}});
  for (const auto& [op, compares] :
       {std::pair("aten::fmax", ">="), std::pair("aten::fmin", "<=")}) {
    const auto chosen =
        "torch.logical_or(self " + std::string(compares) + " other, torch.isnan(other))";
    add({.op = op,
         .gradients = {
             gradient("other", "grad.masked_fill(" + chosen + ", 0)"),
             gradient("self", "grad.masked_fill(torch.logical_not(" + chosen + "), 0)")}});
  }
  return rules;
}

// From PyTorch 2.15 on: each of two equal elements gets half of the gradient.
[[maybe_unused]] std::vector<Rule> selections_that_split() {
  auto rules = clamps_to_numbers(">", "<");
  const auto add = [&](Rule rule) { rules.push_back(std::move(rule)); };
  const auto half = [](const std::string& other) {
    return "torch.where(self == " + other + ", grad / 2, grad)";
  };
  add({.op = "aten::clamp_min.Tensor",
       .gradients = {gradient("min", "torch.where(self > min, 0, " + half("min") + ")"),
                     gradient("self", "torch.where(self < min, 0, " + half("min") + ")")}});
  add({.op = "aten::clamp_max.Tensor",
       .gradients = {gradient("max", "torch.where(self < max, 0, " + half("max") + ")"),
                     gradient("self", "torch.where(self > max, 0, " + half("max") + ")")}});
  for (const auto& [op, compares] : {std::pair("aten::fmax", ">"), std::pair("aten::fmin", "<")}) {
    const auto is_other = [compares = std::string(compares)](const std::string& equal) {
      return "torch.logical_or(self " + compares + equal + " other, torch.isnan(other))";
    };
    add({.op = op,
         .gradients = {
             gradient("other", "torch.where(" + is_other("") + ", 0, " + half("other") + ")"),
             gradient("self", "torch.where(" + is_other("=") + ", " + half("other") + ", 0)")}});
  }
  return rules;
}

// A comparison decides where the gradient goes. Its result is kept in place of its operands.
std::vector<Rule> selections() {
  std::vector<Rule> rules = {
      {.op = "aten::where.self",
       .gradients = {gradient("self", "torch.where(condition, grad, 0)"),
                     gradient("other", "torch.where(condition, 0, grad)")}},
      {.op = "aten::where.ScalarSelf",
       .gradients = {gradient("other", "torch.where(condition, 0, grad)")}},
      {.op = "aten::where.ScalarOther",
       .gradients = {gradient("self", "torch.where(condition, grad, 0)")}},
  };
  for (auto& rule : kSplitsGradientsAtBounds ? selections_that_split() : selections_that_choose())
    rules.push_back(std::move(rule));
  // If the two are equal, each gets half of the gradient.
  const std::string half = "torch.where(self == other, grad / 2, grad)";
  for (const char* op : {"aten::maximum", "aten::max.other"}) {
    rules.push_back(
        {.op = op,
         .gradients = {gradient("other", "torch.where(self > other, 0, " + half + ")"),
                       gradient("self", "torch.where(self < other, 0, " + half + ")")}});
  }
  for (const char* op : {"aten::minimum", "aten::min.other"}) {
    rules.push_back(
        {.op = op,
         .gradients = {gradient("other", "torch.where(self < other, 0, " + half + ")"),
                       gradient("self", "torch.where(self > other, 0, " + half + ")")}});
  }
  return rules;
}

std::vector<Rule> functions() {
  std::vector<Rule> rules = {
      unary("aten::neg", "torch.neg(grad)"),
      unary("aten::positive", "grad"),
      unary("aten::abs", reduced("self", "grad * self.sgn()")),
      unary("aten::reciprocal", "torch.neg(grad) * (result * result).conj()"),
      unary("aten::exp", "grad * result.conj()"),
      unary("aten::exp2", "grad * result.conj() * 0.6931471805599453"),
      unary("aten::expm1", "grad * (result.conj() + 1)"),
      unary("aten::log", "grad.div(self.conj())"),
      unary("aten::log2", "grad / (self.conj() * 0.6931471805599453)"),
      unary("aten::log10", kSplitsGradientsAtBounds ? "grad / (self.conj() * 2.302585092994046)"
                                                    : "grad / (self.conj() * 2.3025850929940456)"),
      unary("aten::log1p", "grad / (self + 1).conj()"),
      unary("aten::sqrt", "grad / (2 * result.conj())"),
      unary("aten::rsqrt", "-0.5 * grad * result.pow(3).conj()"),
      unary("aten::sin", "grad * self.cos().conj()"),
      unary("aten::cos", "grad * torch.neg(self.sin()).conj()"),
      unary("aten::tan", "grad * (1 + result.pow(2)).conj()"),
      unary("aten::sinh", "grad * self.cosh().conj()"),
      unary("aten::cosh", "grad * self.sinh().conj()"),
      unary("aten::tanh", "torch.tanh_backward(grad, result)"),
      unary("aten::asin", "grad * (torch.neg(self) * self + 1).rsqrt().conj()"),
      unary("aten::acos", "grad * torch.neg((torch.neg(self) * self + 1).rsqrt()).conj()"),
      unary("aten::atan", "grad / (self * self + 1).conj()"),
      unary("aten::asinh", "grad * (self.pow(2) + 1).rsqrt().conj()"),
      unary("aten::atanh", "grad * 1 / (1 - self.pow(2)).conj()"),
      unary("aten::sigmoid", "torch.sigmoid_backward(grad, result)"),
      unary("aten::erf", "1.1283791670955126 * torch.exp(torch.neg(self.pow(2))) * grad"),
      unary("aten::erfc", "-1.1283791670955126 * torch.exp(torch.neg(self.pow(2))) * grad"),
      unary("aten::erfinv", "0.8862269254527579 * torch.exp(self.erfinv().pow(2)) * grad"),
      unary("aten::special_erfcx", "(2.0 * self * result - 1.1283791670955126) * grad"),
      unary("aten::lgamma", "grad * torch.digamma(self)"),
      unary("aten::digamma", "grad * torch.polygamma(1, self)"),
      unary("aten::sgn",
            "torch.zeros_like(grad) if is_real else recompute.sgn_grad(grad, self, result)"),
      unary("aten::nan_to_num", "grad * torch.isfinite(self)"),
      unary("aten::logit", "torch.logit_backward(grad, self, eps)"),
      unary("aten::frac", "grad"),
  };
  for (const char* op : {"aten::zero", "aten::fill.Scalar", "aten::floor", "aten::ceil",
                         "aten::round", "aten::round.decimals", "aten::trunc", "aten::sign",
                         "aten_recompute::bernoulli_in_place"}) {
    rules.push_back(unary(op, "torch.zeros_like(grad)"));
  }
  return rules;
}

}  // namespace

std::vector<Rule> elementwise_rules() {
  auto rules = arithmetic();
  append(rules, selections());
  append(rules, functions());
  return rules;
}

}  // namespace aten_recompute
