// Rules of dropout. The mask is kept as a bool tensor, and the same operator applies it in forward
// and backward.
#include "rules/rule.h"

namespace aten_recompute {

std::vector<Rule> dropout_rules() {
  return {
      // Outside training, dropout is the identity: the probability is 0, for which no numbers are
      // drawn.
      {.op = "aten::dropout",
       .forward = "    probability = p if train else 0.\n"
                  "    keep = recompute.dropout_mask(input, probability)\n"
                  "    return recompute.apply_dropout_mask(input, keep, probability), keep",
       .extras = {"mask"},
       .gradients = {{"input", "recompute.apply_dropout_mask(grad, mask, p if train else 0.)"}}},
      {.op = "aten::native_dropout",
       .gradients = {{"input",
                      "torch.native_dropout_backward(grad, result1, (1. if train is None else "
                      "(1. if not train else (0. if p == 1 else 1. / (1. - p)))))"}}},
  };
}

}  // namespace aten_recompute
