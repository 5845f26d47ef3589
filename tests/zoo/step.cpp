// Runs one step of a TorchScript file without Python, and writes what came of it.
//
//   aten_recompute_zoo_step module.pt inputs.pt results.pt
//
//   inputs.pt    a tuple of arguments, as torch.save writes it
//   results.pt   a dict from "result 0", "result 1" and the names of parameters to what the method returned and to the
//                gradients of a loss on it, which is the one of tests/zoo/potentials.py; torch.load reads it
//
// The step is the third one: the first two plan and record.

#include <ATen/Parallel.h>
#include <aten_recompute/aten_recompute.h>
#include <torch/script.h>
#include <torch/serialize.h>

#include <cstdio>
#include <exception>
#include <fstream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

constexpr int kSteps = 3;

std::vector<char> read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    throw std::runtime_error("cannot open " + path);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<c10::IValue> copies(const c10::IValue& inputs) {
  std::vector<c10::IValue> result;
  for (const auto& input : inputs.toTuple()->elements())
    result.push_back(input.isTensor() ? c10::IValue(input.toTensor().clone()) : input);
  return result;
}

at::Tensor loss_of(const std::vector<at::Tensor>& results) {
  at::Tensor loss;
  for (const auto& result : results) {
    if (!result.requires_grad())
      continue;
    const auto term = (result - 0.1).square().sum();
    loss = loss.defined() ? loss + term : term;
  }
  if (!loss.defined())
    throw std::runtime_error("no result requires a gradient");
  return loss;
}

void run(const std::string& path, const std::string& inputs_path, const std::string& results_path) {
  at::set_num_threads(1);  // several threads add the gradients of equal indices in any order
  auto module = torch::jit::load(path);
  const auto inputs = torch::pickle_load(read(inputs_path));
  std::vector<at::Tensor> results;
  for (int step = 0; step < kSteps; ++step) {
    for (const auto& parameter : module.parameters())
      at::Tensor(parameter).mutable_grad() = at::Tensor();
    results.clear();
    const auto returned = module.forward(copies(inputs)).toTuple();
    for (const auto& each : returned->elements())
      results.push_back(each.toTensor());
    loss_of(results).backward();
  }
  c10::Dict<std::string, at::Tensor> seen;
  for (std::size_t i = 0; i < results.size(); ++i)
    seen.insert("result " + std::to_string(i), results[i].detach());
  for (const auto& parameter : module.named_parameters()) {
    if (parameter.value.grad().defined())
      seen.insert(parameter.name, parameter.value.grad());
  }
  const auto bytes = torch::pickle_save(seen);
  std::ofstream file(results_path, std::ios::binary);
  if (!file.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush())
    throw std::runtime_error("cannot write " + results_path);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: aten_recompute_zoo_step module.pt inputs.pt results.pt\n");
    return 2;
  }
  try {
    run(argv[1], argv[2], argv[3]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "aten_recompute_zoo_step: %s\n", error.what());
    return 1;
  }
  return 0;
}
