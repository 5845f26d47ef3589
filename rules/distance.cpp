// Rules of similarities and distances between vectors.
#include "rules/families.h"

namespace aten_recompute {

std::vector<Rule> distance_rules() {
  return {
      // The gradient does not know that small norms are clamped. ATen expands only what has another
      // size, so that eager adds both gradients of x1 to one from elsewhere, not their sum.
      {.op = "aten::cosine_similarity", .forward = R"(
    a, b = torch.broadcast_tensors([x1, x2])
    norm_a = recompute.at_least(torch.linalg_vector_norm(a, 2, [dim], True), eps)
    norm_b = recompute.at_least(torch.linalg_vector_norm(b, 2, [dim], True), eps)
    return ((a / norm_a) * (b / norm_b)).sum([dim]))"},
      {.op = "aten_recompute::at_least", .gradients = {{"self", "grad"}}},
      {.op = "aten::pairwise_distance", .forward = R"(
    return torch.norm(x1 - x2 + eps, p, [max(x1.dim(), x2.dim()) - 1], keepdim))"},
  };
}

}  // namespace aten_recompute
