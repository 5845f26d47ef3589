#include "rules/families.h"

namespace aten_recompute {
namespace {

// softmax with a dtype converts its input first; on a GPU, half to float is part of the kernel.
// `input_dtype` is the type that the kernel reads.
Rule with_dtype(const std::string& op, const std::string& kernel) {
  return {.op = op,
          .forward = R"(
    if dtype is None:
        return torch.)" +
                     kernel + R"((self, dim, False), self.dtype
    half_to_float = self.is_cuda and self.dtype == 5 and dtype == 6
    read = self.dtype if half_to_float else dtype
    return torch.)" + kernel +
                     R"((self.to(read), dim, half_to_float), read)",
          .extras = {"input_dtype: int"},
          .gradients = {{"self", "torch." + kernel +
                                     "_backward_data(grad, result, dim, input_dtype)"
                                     ".to(self.dtype)"}}};
}

}  // namespace

std::vector<Rule> softmax_rules() {
  return {
      with_dtype("aten::softmax.int", "_softmax"),
      with_dtype("aten::special_softmax", "_softmax"),
      with_dtype("aten::log_softmax.int", "_log_softmax"),
      {.op = "aten::_softmax",
       .gradients = {{"self", "torch._softmax_backward_data(grad, result, dim, self.dtype)"}}},
      {.op = "aten::_log_softmax",
       .gradients = {{"self", "torch._log_softmax_backward_data(grad, result, dim, self.dtype)"}}},
  };
}

}  // namespace aten_recompute
