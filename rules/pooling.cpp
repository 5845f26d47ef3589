#include "rules/families.h"

namespace aten_recompute {
namespace {

// Returns the gradient of `self` by a formula in which "<self>" stands for it. The kernels read its
// layout only. Where the gradient is differentiated again, that of self is zeros in eager, and not
// None, so the formula takes self itself there.
GradientFormula by_layout(const std::string& formula) {
  const auto put = [&](const std::string& self) {
    static const std::string place = "<self>";
    auto text = formula;
    for (auto at = text.find(place); at != std::string::npos; at = text.find(place, at))
      text.replace(at, place.size(), self);
    return text;
  };
  return {"self", put(layout_of("self")), put("self")};
}

// As in eager PyTorch, one-dimensional pooling is two-dimensional pooling of a single row.
void add_max_pools(std::vector<Rule>& rules) {
  const std::string row_arguments =
      "[1, kernel_size[0]], [1, (stride if len(stride) > 0 else kernel_size)[0]], "
      "[0, padding[0]], [1, dilation[0]], ceil_mode";
  const std::string row_backward =
      "torch.max_pool2d_with_indices_backward(grad.unsqueeze(-2), <self>.unsqueeze(-2), " +
      row_arguments;
  rules.push_back({.op = "aten::max_pool1d",
                   .forward = R"(
    pooled, positions = torch.max_pool2d_with_indices(self.unsqueeze(-2), )" +
                              row_arguments + R"()
    return pooled.squeeze(-2), positions)",
                   .extras = {"indices"},
                   .gradients = {by_layout(row_backward + ", indices).squeeze(-2)")}});
  rules.push_back(
      {.op = "aten::max_pool1d_with_indices",
       .gradients = {by_layout(row_backward + ", result1.unsqueeze(-2)).squeeze(-2)")}});

  for (const std::string rank : {"2d", "3d"}) {
    const std::string name = "max_pool" + rank + "_with_indices";
    const std::string backward = "torch." + name +
                                 "_backward(grad, <self>, kernel_size, stride, padding, dilation, "
                                 "ceil_mode, ";
    rules.push_back({.op = "aten::max_pool" + rank,
                     .forward = "    return torch." + name +
                                "(self, kernel_size, stride, padding, dilation, ceil_mode)",
                     .extras = {"indices"},
                     .gradients = {by_layout(backward + "indices)")}});
    rules.push_back({.op = "aten::" + name, .gradients = {by_layout(backward + "result1)")}});
    rules.push_back({.op = "aten::adaptive_max_pool" + rank,
                     .gradients = {by_layout("torch.adaptive_max_pool" + rank +
                                             "_backward(grad, <self>, result1)")}});
  }
  rules.push_back(
      {.op = "aten::adaptive_max_pool1d",
       .gradients = {by_layout("torch.adaptive_max_pool2d_backward(grad.unsqueeze(-2), "
                               "<self>.unsqueeze(-2), result1.unsqueeze(-2)).squeeze(-2)")}});
}

void add_average_pools(std::vector<Rule>& rules) {
  rules.push_back({.op = "aten::avg_pool1d",
                   .gradients = {by_layout(
                       "torch.avg_pool2d_backward(grad.unsqueeze(-2), <self>.unsqueeze(-2), "
                       "[1, kernel_size[0]], "
                       "[1, (stride if len(stride) > 0 else kernel_size)[0]], "
                       "[0, padding[0]], ceil_mode, count_include_pad, None).squeeze(-2)")}});
  for (const std::string rank : {"2d", "3d"}) {
    rules.push_back(
        {.op = "aten::avg_pool" + rank,
         .gradients = {by_layout("torch.avg_pool" + rank +
                                 "_backward(grad, <self>, kernel_size, stride, padding, "
                                 "ceil_mode, count_include_pad, divisor_override)")}});
    rules.push_back(
        {.op = "aten::_adaptive_avg_pool" + rank,
         .gradients = {by_layout("torch._adaptive_avg_pool" + rank + "_backward(grad, <self>)")}});
  }
  // To pool to a single element, eager PyTorch takes the mean.
  rules.push_back({.op = "aten::adaptive_avg_pool1d", .gradients = {by_layout(R"(
    if output_size[0] == 1:
        return grad.expand(self.size()) / self.size(-1)
    row = torch._adaptive_avg_pool2d_backward(grad.unsqueeze(-2), <self>.unsqueeze(-2))
    return row.squeeze(-2))")}});
  rules.push_back({.op = "aten::adaptive_avg_pool2d", .gradients = {by_layout(R"(
    if output_size[0] == 1 and output_size[1] == 1:
        return grad.expand(self.size()) / (self.size(-1) * self.size(-2))
    return torch._adaptive_avg_pool2d_backward(grad, <self>))")}});
  rules.push_back({.op = "aten::adaptive_avg_pool3d", .gradients = {by_layout(R"(
    if output_size[0] == 1 and output_size[1] == 1 and output_size[2] == 1:
        return grad.expand(self.size()) / (self.size(-1) * self.size(-2) * self.size(-3))
    return torch._adaptive_avg_pool3d_backward(grad, <self>))")}});
}

// Each operator has an overload `vec`, which F.interpolate calls: it computes sizes and scales and
// calls the other overload. Both capture only sizes.
void add_upsampling(std::vector<Rule>& rules) {
  struct Kernel {
    std::string name;
    int rank;
    bool aligns_corners;
  };
  for (const auto& [name, rank, aligns_corners] :
       std::vector<Kernel>{{"upsample_nearest1d", 1, false},
                           {"upsample_nearest2d", 2, false},
                           {"upsample_nearest3d", 3, false},
                           {"_upsample_nearest_exact1d", 1, false},
                           {"_upsample_nearest_exact2d", 2, false},
                           {"_upsample_nearest_exact3d", 3, false},
                           {"upsample_linear1d", 1, true},
                           {"upsample_bilinear2d", 2, true},
                           {"upsample_bicubic2d", 2, true},
                           {"upsample_trilinear3d", 3, true},
                           {"_upsample_bilinear2d_aa", 2, true},
                           {"_upsample_bicubic2d_aa", 2, true}}) {
    const std::string corners = aligns_corners ? ", align_corners" : "";
    const std::vector<std::string> axes =
        rank == 1   ? std::vector<std::string>{"scales"}
        : rank == 2 ? std::vector{std::string("scales_h"), std::string("scales_w")}
                    : std::vector{std::string("scales_d"), std::string("scales_h"),
                                  std::string("scales_w")};
    std::string scales;
    std::string scales_of_vec;
    for (size_t i = 0; i < axes.size(); ++i) {
      scales += ", " + axes[i];
      scales_of_vec += ", recompute.scale_factor(scale_factors, " + std::to_string(i) + ")";
    }
    const std::string backward = "torch." + name + "_backward(grad, ";
    rules.push_back(
        {.op = "aten::" + name,
         .gradients = {{"self", backward + "output_size, self.size()" + corners + scales + ")"}}});
    rules.push_back({.op = "aten::" + name + ".vec",
                     .gradients = {{"input", backward + "result.size()[2:], input.size()" +
                                                 corners + scales_of_vec + ")"}}});
  }
}

void add_grid_samplers(std::vector<Rule>& rules) {
  const std::string arguments =
      "(grad, input, grid, interpolation_mode, padding_mode, "
      "align_corners, [needs_input, needs_grid])";
  for (const std::string rank : {"2d", "3d"}) {
    const std::string name = "grid_sampler_" + rank;
    rules.push_back({.op = "aten::" + name,
                     .gradients = {{"input, grid", "torch." + name + "_backward" + arguments}}});
  }
  rules.push_back({.op = "aten::grid_sampler",
                   .gradients = {{"input, grid",
                                  "recompute.grid_sampler_backward(grad, input, grid, "
                                  "interpolation_mode, padding_mode, align_corners, needs_input, "
                                  "needs_grid)"}}});
}

}  // namespace

// The backward kernels of pooling do not read the elements of the input: indices, or the windows,
// say where the gradient goes.
std::vector<Rule> pooling_rules() {
  std::vector<Rule> rules;
  add_max_pools(rules);
  add_average_pools(rules);
  add_upsampling(rules);
  add_grid_samplers(rules);
  return rules;
}

}  // namespace aten_recompute
