// Rules of similarities and distances between vectors.
#include "rules/families.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/common_size.h"

namespace aten_recompute {
namespace {

// The gradient does not know that small norms are clamped. ATen divides the second operand first.
std::string compose_cosine_similarity(const torch::jit::Node* node) {
  const std::string operands = node->hasAttribute(kHasCommonSize)
                                   ? "    a = x1\n    b = x2\n"
                                   : "    a, b = torch.broadcast_tensors([x1, x2])\n";
  return operands + R"(
    norm_a = recompute.at_least(torch.linalg_vector_norm(a, 2, [dim], True), eps)
    norm_b = recompute.at_least(torch.linalg_vector_norm(b, 2, [dim], True), eps)
    unit_b = b / norm_b
    return ((a / norm_a) * unit_b).sum([dim]))";
}

// Returns TorchScript for the gradients of both operands of cdist.
std::string cdist_gradients(bool is_of_itself) {
  return std::string("recompute.cdist_backward(grad, x1, x2, p, compute_mode, result, needs_x1, ") +
         "needs_x2, " + (is_of_itself ? "True)" : "False)");
}

}  // namespace

std::vector<Rule> distance_rules() {
  return {
      {.op = "aten::cdist",
       .gradients = {{.inputs = "x1, x2",
                      .body = cdist_gradients(false),
                      .of_square = cdist_gradients(true)}}},
      {.op = "aten_recompute::cdist_backward",
       .gradients = {{"gradient, x1, x2, distances",
                      "recompute.cdist_double_backward(grad, grad1, gradient, x1, x2, p, "
                      "compute_mode, distances, has_first, has_second)"}}},
      {.op = "aten::cosine_similarity", .compose = &compose_cosine_similarity},
      {.op = "aten_recompute::at_least", .gradients = {{"self", "grad"}}},
      {.op = "aten::pairwise_distance", .forward = R"(
    return torch.norm(x1 - x2 + eps, p, [max(x1.dim(), x2.dim()) - 1], keepdim))"},
  };
}

}  // namespace aten_recompute
