// Lowers a plain module in C++ and trains it; then trains what Python lowered.
//
//   linked plain.pt lowered.pt

#include <aten_recompute/aten_recompute.h>
#include <torch/script.h>

#include <cstdio>
#include <exception>
#include <string>
#include <vector>

namespace {

bool trains(torch::jit::Module module) {
  const auto x = torch::rand({256, 32});
  const auto targets = torch::rand({256, 32});
  double first = 0;
  double last = 0;
  for (int step = 0; step < 20; ++step) {
    const auto loss = module.forward({x, targets}).toTensor();
    loss.backward();
    torch::NoGradGuard no_grad;
    for (auto parameter : module.parameters()) {
      parameter.sub_(parameter.grad(), 0.1);
      parameter.mutable_grad().reset();
    }
    last = loss.item<double>();
    if (step == 0)
      first = last;
  }
  std::printf("loss %.4f, then %.4f\n", first, last);
  return last < first;
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 3) {
    std::fputs("usage: linked plain.pt lowered.pt\n", stderr);
    return 2;
  }
  const auto lowered =
      aten_recompute::lower(torch::jit::load(argv[1]), R"({"strategy": "segments"})");
  if (!trains(lowered) || !trains(torch::jit::load(argv[2])))
    return 1;
  std::printf("trained with aten_recompute %s\n", aten_recompute::version());
  return aten_recompute::report(lowered).find("\"regions\"") == std::string::npos ? 1 : 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "linked: %s\n", aten_recompute::one_line(error).c_str());
  return 1;
}
