// Lowers a TorchScript file under a memory budget and trains it, without Python in the process.
//
//   cpp_lower model.pt --input 8,3,224,224 --budget 0.5 --steps 10 --output trained.pt
//
//   model.pt    written by torch.jit.script(...).save(): a module whose forward takes one float32
//               tensor and returns a tensor; the loss is the mean of its squares
//   trained.pt  plain TorchScript again, which loads where this library is not
//
// A budget that no plan keeps is tried again at the smallest that can be reached.

#include <aten_recompute/aten_recompute.h>
#include <torch/optim.h>
#include <torch/script.h>
#include <torch/utils.h>
#include <CLI/CLI.hpp>

#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

struct Options {
  std::string model;
  std::string output;
  std::string budget = "0.5";
  std::vector<std::int64_t> sizes;
  std::int64_t steps = 10;
};

torch::jit::Module load(const std::string& path) {
  if (!std::ifstream(path))
    throw std::runtime_error("cannot open " + path);
  try {
    return torch::jit::load(path);
  } catch (const std::exception& error) {
    throw std::runtime_error(
        path + " is not a module that can be loaded: " + aten_recompute::one_line(error));
  }
}

torch::jit::Module lower(const torch::jit::Module& module, const std::string& budget) {
  return aten_recompute::lower(module,
                               R"({"strategy": "budget", "memory_budget": ")" + budget + R"("})");
}

double step(torch::jit::Module& module, torch::optim::Optimizer& optimizer, const at::Tensor& x) {
  optimizer.zero_grad();
  const auto loss = module.forward({x}).toTensor().square().mean();
  loss.backward();
  optimizer.step();
  return loss.item<double>();
}

void train(const Options& options) {
  torch::manual_seed(0);
  auto module = load(options.model);
  module.train();
  std::vector<at::Tensor> parameters;
  for (const auto& parameter : module.parameters())
    parameters.push_back(parameter);
  torch::optim::SGD optimizer(parameters, 0.01);
  const auto x = torch::randn(options.sizes);

  auto lowered = lower(module, options.budget);
  bool retried = false;
  for (std::int64_t i = 0; i < options.steps; ++i) {
    try {
      std::printf("step %lld  loss %.5f\n", static_cast<long long>(i), step(lowered, optimizer, x));
    } catch (const std::exception& error) {
      const auto typed = aten_recompute::typed_error(error);
      const auto* unreachable =
          dynamic_cast<const aten_recompute::BudgetUnreachableError*>(typed.get());
      if (unreachable == nullptr || retried)
        throw;
      retried = true;
      std::printf("%s\n", aten_recompute::one_line(error).c_str());
      lowered = lower(module, std::to_string(unreachable->smallest_peak_bytes));
      --i;
    }
  }
  if (!options.output.empty()) {
    module.save(options.output);  // shares its tensors with the lowered one
    std::printf("the trained module is in %s\n", options.output.c_str());
  }
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Lowers a TorchScript file under a memory budget and trains it");
  app.add_option("model", options.model, "A TorchScript file")->required();
  app.add_option("--input", options.sizes, "Sizes of the input, such as 8,3,224,224")
      ->delimiter(',')
      ->required();
  app.add_option("--budget", options.budget, "A share of the peak, or bytes such as 600MiB")
      ->capture_default_str();
  app.add_option("--steps", options.steps, "Number of steps")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  app.add_option("--output", options.output, "A file for the trained module");
  CLI11_PARSE(app, argc, argv);
  try {
    train(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cpp_lower: %s\n", aten_recompute::one_line(error).c_str());
    return 1;
  }
  return 0;
}
