// Rules of table look-ups.
#include "rules/rule.h"

namespace aten_recompute {

std::vector<Rule> embedding_rules() {
  return {
      {.op = "aten::embedding",
       .gradients = {{"weight",
                      "torch.embedding_backward(grad, indices, weight.size(0), padding_idx, "
                      "scale_grad_by_freq, sparse)"}}},
  };
}

}  // namespace aten_recompute
