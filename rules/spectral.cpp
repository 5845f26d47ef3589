// Rules of Fourier transforms and of complex numbers made of real ones.
#include "rules/families.h"

namespace aten_recompute {
namespace {

// `s` and `dim` are TorchScript for lists, or for None.
Rule transform(const std::string& name, const std::string& s, const std::string& dim) {
  return {
      .op = "aten::fft_" + name,
      .gradients = {{"self", "recompute.fft_backward(grad, \"" + name +
                                 "\", self.size(), self.dtype, " + s + ", " + dim + ", norm)"}}};
}

// A gradient of a transform is a linear function of the gradient that it is given.
Rule of_gradient(const std::string& op, const std::string& gradient) {
  return {.op = "aten_recompute::" + op,
          .gradients = {
              {"gradient", "recompute." + gradient + "(grad, name, sizes, dtype, s, dim, norm)"}}};
}

}  // namespace

std::vector<Rule> spectral_rules() {
  std::vector<Rule> rules{
      of_gradient("fft_backward", "fft_double_backward"),
      of_gradient("fft_double_backward", "fft_backward"),
      {.op = "aten::view_as_real",
       .gradients = {{"self", "torch.view_as_complex(grad.contiguous())"}}},
      {.op = "aten::view_as_complex",
       .gradients = {{"self", "torch.view_as_real(grad.contiguous().resolve_conj())"}}},
      {.op = "aten::complex",
       .gradients = {{"real", "torch.real(grad)"}, {"imag", "torch.imag(grad)"}}},
      {.op = "aten::polar",
       .gradients = {{"abs", "torch.real(grad.conj() * torch.sgn(result))"},
                     {"angle", "torch.real(grad.conj() * (result * 1j))"}}},
      {.op = "aten::real", .gradients = {{"self", "recompute.real_backward(grad, self.dtype)"}}},
      {.op = "aten::imag", .gradients = {{"self", "recompute.imag_backward(grad)"}}},
      {.op = "aten_recompute::real_backward", .gradients = {{"gradient", "torch.real(grad)"}}},
      {.op = "aten_recompute::imag_backward", .gradients = {{"gradient", "torch.imag(grad)"}}},
  };
  for (const char* name : {"fft", "ifft", "rfft", "irfft"}) {
    rules.push_back(transform(name, "recompute.as_list(n)", "[dim]"));
    rules.push_back(transform(std::string(name) + "2", "s", "dim"));
    rules.push_back(transform(std::string(name) + "n", "s", "dim"));
  }
  return rules;
}

}  // namespace aten_recompute
