// Opens the library by its path, and takes a step with a module that Python lowered.
//
//   opened libaten_recompute.so lowered.pt

#include <dlfcn.h>
#include <torch/script.h>

#include <cstdio>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fputs("usage: opened libaten_recompute.so lowered.pt\n", stderr);
    return 2;
  }
  if (dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) == nullptr) {
    std::fprintf(stderr, "opened: %s\n", dlerror());
    return 1;
  }
  auto module = torch::jit::load(argv[2]);
  const auto loss = module.forward({torch::rand({256, 32}), torch::rand({256, 32})}).toTensor();
  loss.backward();
  for (const auto& parameter : module.parameters()) {
    if (!parameter.grad().defined())
      return 1;
  }
  std::puts("took a step");
  return 0;
}
