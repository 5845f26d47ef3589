#include "rules/families.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <string>

namespace aten_recompute {
namespace {

// `kept_size` is the shape that the result would have with keepdim. The gradient is viewed with
// this shape.
void add_sums(std::vector<Rule>& rules) {
  const std::vector<Rule> more = {
      {.op = "aten::sum", .gradients = {{"self", "grad.to(self.dtype).expand(self.size())"}}},
      {.op = "aten::sum.dim_IntList",
       .gradients = {{"self",
                      "grad.to(self.dtype).view(recompute.kept_size(self.size(), dim))"
                      ".expand(self.size())"}}},
      {.op = "aten::mean",
       .gradients = {{"self", "(grad.expand(self.size()) / self.numel()).to(self.dtype)"}}},
      {.op = "aten::mean.dim",
       .gradients = {{"self",
                      "(grad.view(recompute.kept_size(self.size(), dim)).expand(self.size()) / "
                      "recompute.reduced_numel(self.size(), dim)).to(self.dtype)"}}},
      {.op = "aten::nansum",
       .gradients = {{"self",
                      "grad.to(self.dtype).view(recompute.kept_size(self.size(), dim))"
                      ".expand(self.size()) * torch.logical_not(torch.isnan(self))"}}},
      {.op = "aten::logsumexp",
       .gradients = {{"self",
                      "grad.view(recompute.kept_size(self.size(), dim)) * "
                      "(self - result.view(recompute.kept_size(self.size(), dim))).exp().conj()"}}},
      {.op = "aten::cumsum",
       .gradients = {{"self", "recompute.cumsum_backward(grad.to(self.dtype), dim)"}}},
      {.op = "aten_recompute::cumsum_backward",
       .gradients = {{"gradient", "torch.cumsum(grad, dim)"}}},
      {.op = "aten::cumprod",
       .gradients = {{"self", "torch.cumprod_backward(grad.to(self.dtype), self, dim, result)"}}},
      {.op = "aten::prod",
       .gradients = {{"self",
                      "recompute.prod_backward(grad, self.to(grad.dtype), result)"
                      ".to(self.dtype)"}}},
      {.op = "aten::prod.dim_int",
       .gradients = {{"self",
                      "recompute.prod_dim_backward(grad, self.to(grad.dtype), result, dim, keepdim)"
                      ".to(self.dtype)"}}},
  };
  rules.insert(rules.end(), more.begin(), more.end());
}

void add_extrema(std::vector<Rule>& rules) {
  for (const char* op : {"aten::max.dim", "aten::min.dim", "aten::median.dim", "aten::mode"}) {
    rules.push_back({.op = op,
                     .gradients = {{"self",
                                    "torch.value_selecting_reduction_backward(grad, dim, result1, "
                                    "self.size(), keepdim)"}}});
  }
  for (const char* op : {"aten::sort", "aten::sort.stable", "aten::topk"}) {
    rules.push_back({.op = op,
                     .gradients = {{"self",
                                    "torch.value_selecting_reduction_backward(grad, dim, result1, "
                                    "self.size(), True)"}}});
  }
  // All elements that equal the result get the same share of the gradient. Differentiated again,
  // it does not lead back to them.
  for (const char* op : {"aten::max", "aten::min", "aten::median"}) {
    rules.push_back(
        {.op = op,
         .gradients = {{"self", "recompute.evenly_distribute_backward(grad, self, result)",
                        "recompute.evenly_distribute_backward(grad, self.detach(), "
                        "result.detach())"}}});
  }
  for (const char* op : {"aten::amax", "aten::amin"}) {
    rules.push_back({.op = op, .gradients = {{"self", R"(
    kept = recompute.kept_size(self.size(), dim)
    mask = result.view(kept) == self
    return (grad.view(kept) * mask) / mask.sum(dim, True))"}}});
  }
}

// Returns the length of a list of numbers, or nothing for None and where the graph does not tell.
std::optional<size_t> length_of_list(const torch::jit::Value* list) {
  if (list->node()->kind() == c10::prim::ListConstruct)
    return list->node()->inputs().size();
  if (list->mustBeNone())
    return std::nullopt;
  if (const auto constant = torch::jit::constant_as<c10::List<int64_t>>(list))
    return constant->size();
  return std::nullopt;
}

// Writes a norm that ATen takes of a vector: one without an order, or along one dimension.
// The other ones are norms of a matrix.
std::string compose_norm(const torch::jit::Node* node) {
  const std::string arguments = "dim, keepdim, dtype=dtype)";
  const auto* order = node->namedInput("ord");
  if (order->mustBeNone())
    return "    return torch.linalg_vector_norm(self, 2, " + arguments;
  if (order->type()->kind() == c10::TypeKind::OptionalType ||
      length_of_list(node->namedInput("dim")) != 1)
    return "";
  return "    return torch.linalg_vector_norm(self, torch._unwrap_optional(ord), " + arguments;
}

// Writes a norm of a matrix whose order has a name, where that is Frobenius'.
std::string compose_frobenius_norm(const torch::jit::Node* node) {
  const auto* dim = node->namedInput("dim");
  if (torch::jit::constant_as<std::string>(node->namedInput("ord")) != "fro" ||
      !(dim->mustBeNone() || length_of_list(dim) == 2))
    return "";
  return std::string("    return torch.linalg_vector_norm(self, 2, ") +
         (dim->mustBeNone() ? "[-2, -1]" : "dim") + ", keepdim, dtype=dtype)";
}

void add_norms(std::vector<Rule>& rules) {
  const std::vector<Rule> more = {
      {.op = "aten::norm.Scalar",
       .gradients = {{"self", "recompute.norm_backward(grad, self, p, result, None)"}}},
      {.op = "aten::norm.ScalarOpt_dim",
       .gradients = {{"self", "recompute.norm_backward(grad, self, p, result, dim)"}}},
      {.op = "aten::norm.ScalarOpt_dtype",
       .gradients = {{"self",
                      "recompute.norm_backward(grad, self.to(grad.dtype), p, result, None)"
                      ".to(self.dtype)"}}},
      {.op = "aten::norm.ScalarOpt_dim_dtype",
       .gradients = {{"self",
                      "recompute.norm_backward(grad, self.to(grad.dtype), p, result, dim)"
                      ".to(self.dtype)"}}},
      {.op = "aten::linalg_norm", .compose = &compose_norm},
      {.op = "aten::linalg_norm.ord_str", .compose = &compose_frobenius_norm},
      {.op = "aten::linalg_matrix_norm.str_ord", .compose = &compose_frobenius_norm},
      {.op = "aten::linalg_vector_norm",
       .gradients = {{"self",
                      "recompute.norm_backward(grad, self, ord, result, dim).to(self.dtype)"}}},
  };
  rules.insert(rules.end(), more.begin(), more.end());
}

// var, std, var_mean and std_mean have three overloads each: over all elements, over dimensions
// with a flag, and with a correction. The first two are converted to the third.
void add_variances(std::vector<Rule>& rules) {
  struct Overload {
    const char* name;
    const char* dim;
    const char* correction;
  };
  for (const auto& [name, dim, correction] :
       {Overload{"", "None", "int(unbiased)"}, Overload{".dim", "dim", "int(unbiased)"},
        Overload{".correction", "dim", "correction"}}) {
    const std::string tail = std::string(dim) + ", " + correction + ")";
    const std::string overload = name;
    rules.push_back(
        {.op = "aten::var" + overload,
         .gradients = {{"self", "recompute.var_mean_backward(grad, None, None, self, " + tail}}});
    rules.push_back(
        {.op = "aten::std" + overload,
         .gradients = {{"self", "recompute.var_mean_backward(grad, None, result, self, " + tail}}});
    rules.push_back(
        {.op = "aten::var_mean" + overload,
         .gradients = {{"self", "recompute.var_mean_backward(grad, grad1, None, self, " + tail}}});
    rules.push_back(
        {.op = "aten::std_mean" + overload,
         .gradients = {
             {"self", "recompute.var_mean_backward(grad, grad1, result, self, " + tail}}});
  }
}

// Writes n differences of neighbors, as ATen composes them.
std::string compose_differences(const torch::jit::Node* node) {
  constexpr int64_t kMost = 16;  // more would only make the graph long
  const auto n = torch::jit::constant_as<int64_t>(node->input(1));
  if (!n || *n < 1 || *n > kMost)
    return "";
  std::string list = "self";
  for (size_t i : {3, 4}) {
    const auto kind = node->input(i)->type()->kind();
    if (kind == c10::TypeKind::OptionalType)
      return "";
    if (kind == c10::TypeKind::TensorType)
      list = i == 3 ? "torch._unwrap_optional(prepend), " + list
                    : list + ", torch._unwrap_optional(append)";
  }
  std::string text =
      "    values = " + (list == "self" ? list : "torch.cat([" + list + "], dim)") + "\n";
  for (int64_t i = 0; i < *n; ++i)
    text +=
        "    first = torch.slice(values, dim, 0, -1)\n"
        "    values = torch.slice(values, dim, 1) - first\n";
  return text + "    return values";
}

}  // namespace

std::vector<Rule> reduction_rules() {
  std::vector<Rule> rules;
  rules.push_back({.op = "aten::diff", .compose = &compose_differences});
  add_sums(rules);
  add_extrema(rules);
  add_norms(rules);
  add_variances(rules);
  return rules;
}

}  // namespace aten_recompute
