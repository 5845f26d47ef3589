// Continues to train a lowered module that Python saved, without Python in the process.
//
//   cpp_train gpt.pt tokens.pt --steps 40
//
//   gpt.pt     written by lowered.save("gpt.pt"): forward(tokens, targets) -> loss, where both
//              arguments are int64 tensors of shape (batch, length)
//   tokens.pt  written by torch.save(tokens, "tokens.pt"): one integer tensor, (characters,)
//
// The program links the library, so torch::jit::load finds the backend that the file needs. Nothing
// else is specific to aten_recompute; its header one_line.h shortens LibTorch's errors.

#include <aten_recompute/one_line.h>
#include <torch/optim.h>
#include <torch/script.h>
#include <torch/serialize.h>
#include <torch/utils.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using aten_recompute::one_line;

struct Options {
  std::string model_path;
  std::string tokens_path;
  std::int64_t steps = 40;
  std::int64_t batch = 16;
  std::int64_t length = 128;
  std::int64_t report_every = 10;
  std::uint64_t seed = 0;
  double learning_rate = 5e-4;
};

std::vector<char> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    throw std::runtime_error("cannot open " + path);
  }
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

torch::jit::Module load_module(const std::string& path) {
  if (!std::ifstream(path)) {
    throw std::runtime_error("cannot open " + path);
  }
  try {
    return torch::jit::load(path);
  } catch (const std::exception& error) {
    throw std::runtime_error(path + " is not a module that can be loaded: " + one_line(error));
  }
}

torch::Tensor load_tokens(const std::string& path, std::int64_t length) {
  const std::vector<char> bytes = read_file(path);
  torch::Tensor tokens;
  try {
    tokens = torch::pickle_load(bytes).toTensor().to(torch::kInt64);
  } catch (const std::exception& error) {
    throw std::runtime_error(path + " is not a tensor that torch.save wrote: " + one_line(error));
  }
  if (tokens.dim() != 1 || tokens.size(0) < length + 2) {
    throw std::runtime_error(path + " must hold one dimension of more than --length + 1 tokens");
  }
  return tokens;
}

// Returns random crops of the text as {tokens, targets}, int64 tensors of shape (batch, length).
// The targets are the tokens shifted by one.
std::pair<torch::Tensor, torch::Tensor> random_batch(const torch::Tensor& text,
                                                     const Options& options) {
  const auto starts =
      torch::randint(text.size(0) - options.length - 1, {options.batch, 1}, torch::kInt64);
  const auto crops = text.index({starts + torch::arange(options.length + 1)});
  return {crops.narrow(1, 0, options.length).contiguous(),
          crops.narrow(1, 1, options.length).contiguous()};
}

double mean(const double* begin, const double* end) {
  return std::accumulate(begin, end, 0.0) / static_cast<double>(end - begin);
}

// Trains the module and returns the loss of every step, in nats per token.
std::vector<double> train(torch::jit::Module module, const torch::Tensor& text,
                          const Options& options) {
  std::vector<torch::Tensor> parameters;
  for (const auto& parameter : module.parameters()) {
    parameters.push_back(parameter);
  }
  if (parameters.empty()) {
    throw std::runtime_error(options.model_path + " has no parameters to train");
  }
  torch::optim::AdamW optimizer(parameters, torch::optim::AdamWOptions(options.learning_rate));

  module.train();
  std::vector<double> losses;
  for (std::int64_t step = 1; step <= options.steps; ++step) {
    const auto [tokens, targets] = random_batch(text, options);
    optimizer.zero_grad();
    const auto loss = module.forward({tokens, targets}).toTensor();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
    if (step == 1 || step % options.report_every == 0) {
      std::printf("step %4lld  loss %.5f\n", static_cast<long long>(step), losses.back());
      std::fflush(stdout);
    }
  }
  return losses;
}

// Compares the mean losses of the first and the last quarter of the steps, because losses of single
// batches differ by more than a few steps of training change. Returns whether the loss fell.
bool report_fall(const std::vector<double>& losses) {
  const auto quarter = std::max<std::size_t>(1, losses.size() / 4);
  const double first = mean(losses.data(), losses.data() + quarter);
  const double last = mean(losses.data() + losses.size() - quarter, losses.data() + losses.size());
  if (last < first) {
    std::printf("loss fell from %.5f to %.5f\n", first, last);
    return true;
  }
  // This is also reached if a loss is NaN.
  std::printf("loss did not fall: %.5f at first, %.5f at last\n", first, last);
  return false;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app(
      "Trains a module that aten_recompute lowered and Python saved. Exits with 1 if the loss does "
      "not fall.");
  app.option_defaults()->always_capture_default();
  app.add_option("model", options.model_path, "the saved module")->required();
  app.add_option("tokens", options.tokens_path, "the saved text, one integer tensor")->required();
  app.add_option("--steps", options.steps, "training steps")->check(CLI::Range(2, 1'000'000));
  app.add_option("--batch", options.batch, "crops per step")->check(CLI::PositiveNumber);
  app.add_option("--length", options.length, "tokens per crop")->check(CLI::PositiveNumber);
  app.add_option("--learning-rate", options.learning_rate, "learning rate of AdamW")
      ->check(CLI::PositiveNumber);
  app.add_option("--report-every", options.report_every,
                 "training steps between two lines of output")
      ->check(CLI::PositiveNumber);
  app.add_option("--seed", options.seed, "seed of the crops and of dropout");
  CLI11_PARSE(app, argc, argv);

  try {
    torch::manual_seed(options.seed);
    const torch::Tensor text = load_tokens(options.tokens_path, options.length);
    const std::vector<double> losses = train(load_module(options.model_path), text, options);
    return report_fall(losses) ? 0 : 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cpp_train: %s\n", one_line(error).c_str());
    return 1;
  }
}
