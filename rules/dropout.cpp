// Rules of dropout. The mask is kept as a bool tensor, and the same operator applies it in forward
// and backward. Outside training, a dropout is the identity: the probability is 0, for which no
// numbers are drawn.
#include "rules/families.h"

namespace aten_recompute {

namespace {

// `draw` makes the mask, `apply` computes the result and `backward` the gradient from it.
Rule dropout(const std::string& op, const std::string& draw, const std::string& apply,
             const std::string& backward) {
  return {.op = op,
          .forward =
              "    probability = p if train else 0.\n"
              "    keep = recompute." +
              draw +
              "(input, probability)\n"
              "    return recompute." +
              apply + "(input, keep, probability), keep",
          .extras = {"mask"},
          .gradients = {{"input", "recompute." + backward + "(grad, mask, p if train else 0.)"}}};
}

}  // namespace

std::vector<Rule> dropout_rules() {
  return {
      dropout("aten::dropout", "dropout_mask", "apply_dropout_mask", "apply_dropout_mask"),
      // dropout_(), whose numbers are on each device those of a composed operator
      dropout("aten_recompute::dropout_in_place", "composed_dropout_mask", "multiply_by_noise",
              "multiply_by_noise"),
      dropout("aten::feature_dropout", "feature_dropout_mask", "multiply_by_noise",
              "multiply_by_noise"),
      dropout("aten::alpha_dropout", "composed_dropout_mask", "apply_alpha_dropout_mask",
              "alpha_dropout_backward"),
      dropout("aten::feature_alpha_dropout", "feature_dropout_mask", "apply_alpha_dropout_mask",
              "alpha_dropout_backward"),
      {.op = "aten::native_dropout",
       .gradients = {{"input",
                      "torch.native_dropout_backward(grad, result1, (1. if train is None else "
                      "(1. if not train else (0. if p == 1 else 1. / (1. - p)))))"}}},
  };
}

}  // namespace aten_recompute
