#include "rules/families.h"

namespace aten_recompute {

// The kernel for a call is chosen when it runs (rules/kernels/attention.cpp). A separate operator
// draws the random numbers of dropout, so that attention can be recomputed with the same numbers.
std::vector<Rule> attention_rules() {
  const std::string arguments =
      "query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa, needs_attn_mask";
  return {
      {.op = "aten::scaled_dot_product_attention",
       .forward = "    drawn = recompute.attention_dropout(" + arguments + ")\n" +
                  "    a, b, c, d, e, f, g = recompute.attention(" + arguments +
                  ", drawn)\n"
                  "    return a, b, c, d, e, f, g, drawn",
       .extras = {"statistics", "seed", "offset", "max_query: int", "max_key: int", "backend: int",
                  "dropped"},
       .gradients = {{"query, key, value, attn_mask",
                      "recompute.attention_backward(grad, " + arguments +
                          ", result, statistics, seed, offset, max_query, max_key, backend, "
                          "dropped)"}}},
  };
}

}  // namespace aten_recompute
