// What the C++ snippets of the documents take for granted: a mark above a snippet names one of
// these macros, SETUP_<name>. A reader has a program of their own in their place.
#pragma once

#include <aten_recompute/aten_recompute.h>
#include <aten_recompute/passes.h>
#include <aten_recompute/trace_and_lower.h>
#include <torch/script.h>
#include <torch/torch.h>

#include <cstdint>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

inline at::Tensor batch_of(const char* name) {
  const auto loaded = torch::jit::load("batch.pt");
  return loaded.attr(name).toTensor();
}

inline void retry_with(std::int64_t bytes) {
  std::cout << "smallest: " << bytes << '\n';
}

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 10; ++i)
      layers->push_back(torch::nn::Linear(i == 0 ? 8 : 64, i == 9 ? 8 : 64));
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& layer : *layers)
      x = torch::tanh(layer->as<torch::nn::Linear>()->forward(x));
    return x;
  }
  torch::nn::ModuleList layers = register_module("layers", torch::nn::ModuleList());
};
TORCH_MODULE(Net);

TORCH_LIBRARY(mylib, library) {
  library.def("scaled_tanh(Tensor x, float scale) -> Tensor");
}
TORCH_LIBRARY_IMPL(mylib, CPU, library) {
  library.impl("scaled_tanh", [](const at::Tensor& x, double scale) { return x.tanh() * scale; });
}

#define SETUP_batch                       \
  const auto tokens = batch_of("tokens"); \
  const auto targets = batch_of("targets");
#define SETUP_loaded                                    \
  SETUP_batch auto module = torch::jit::load("gpt.pt"); \
  at::Tensor loss;
#define SETUP_trained_module SETUP_loaded module.forward({tokens, targets}).toTensor().backward();
#define SETUP_unreachable                                 \
  SETUP_batch auto module = torch::jit::load("small.pt"); \
  at::Tensor loss;
#define SETUP_network                     \
  Net net;                                \
  const auto x = torch::randn({1024, 8}); \
  const auto y = torch::randn({1024, 8}); \
  torch::optim::SGD optimizer(net->parameters(), 0.1);
#define SETUP_model SETUP_batch auto module = torch::jit::load("model.pt");
