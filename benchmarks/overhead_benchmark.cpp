// What the backend adds to a call: chains of operators on one number, so that nearly all of the
// time is the interpreter's, autograd's, or ours.
//
//   build/overhead_benchmark --benchmark_filter=Step
//
// The argument is the number of operators. Every variant runs the same module, in one thread.
#include <ATen/Parallel.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/ones.h>
#include <benchmark/benchmark.h>
#include <torch/csrc/jit/api/module.h>

#include <string>

#include "aten_recompute/aten_recompute.h"

namespace aten_recompute {
namespace {

using torch::jit::Module;

Module chain(int64_t operators) {
  Module module("chain");
  module.register_parameter("w", at::ones({1}).set_requires_grad(true), /*is_buffer=*/false);
  std::string source = "def forward(self, x):\n    x = x * self.w\n";
  for (int64_t i = 1; i < operators; ++i)
    source += i % 2 != 0 ? "    x = torch.tanh(x)\n" : "    x = torch.sigmoid(x)\n";
  module.define(source + "    return x\n");
  return module;
}

// As many parameters as operators.
Module products(int64_t parameters) {
  Module module("products");
  std::string source = "def forward(self, x):\n";
  for (int64_t i = 0; i < parameters; ++i) {
    const auto name = "w" + std::to_string(i);
    module.register_parameter(name, at::ones({1}).set_requires_grad(true), /*is_buffer=*/false);
    source += "    x = x * self." + name + "\n";
  }
  module.define(source + "    return x\n");
  return module;
}

// Runs until everything is compiled: the profiling executor's second run is its slowest.
template <typename Step>
void warm_up(const Step& step) {
  for (int i = 0; i < 4; ++i)
    step();
}

void forward(benchmark::State& state, Module module) {
  at::set_num_threads(1);
  const at::NoGradGuard guard;
  const auto x = at::ones({1});
  const auto call = [&] { benchmark::DoNotOptimize(module.forward({x})); };
  warm_up(call);
  for (auto _ : state)
    call();
}

void step(benchmark::State& state, Module module) {
  at::set_num_threads(1);
  const auto x = at::ones({1});
  const auto call = [&] { module.forward({x}).toTensor().backward(); };
  warm_up(call);
  for (auto _ : state)
    call();
}

Module lowered(int64_t operators, const char* strategy) {
  return lower(chain(operators), std::string(R"({"strategy": ")") + strategy + "\"}");
}

void BM_ForwardTorchScript(benchmark::State& state) {
  forward(state, chain(state.range(0)));
}
void BM_ForwardLowered(benchmark::State& state) {
  forward(state, lowered(state.range(0), "none"));
}
void BM_StepTorchScript(benchmark::State& state) {
  step(state, chain(state.range(0)));
}
void BM_StepLowered(benchmark::State& state) {
  step(state, lowered(state.range(0), "none"));
}
// What is computed again is the user's wish; the rest is overhead.
void BM_StepLoweredAll(benchmark::State& state) {
  step(state, lowered(state.range(0), "all"));
}

// Without the backward: what a call finds out about its inputs.
void record(benchmark::State& state, Module module) {
  at::set_num_threads(1);
  const auto x = at::ones({1});
  const auto call = [&] { benchmark::DoNotOptimize(module.forward({x})); };
  warm_up(call);
  for (auto _ : state)
    call();
}
void BM_RecordProductsTorchScript(benchmark::State& state) {
  record(state, products(state.range(0)));
}
void BM_RecordProductsLowered(benchmark::State& state) {
  record(state, lower(products(state.range(0)), R"({"strategy": "none"})"));
}

void operators(benchmark::internal::Benchmark* benchmark) {
  for (int64_t count : {1, 10, 100})
    benchmark->Arg(count);
  benchmark->Unit(benchmark::kMicrosecond);
}

BENCHMARK(BM_ForwardTorchScript)->Apply(operators);
BENCHMARK(BM_ForwardLowered)->Apply(operators);
BENCHMARK(BM_StepTorchScript)->Apply(operators);
BENCHMARK(BM_StepLowered)->Apply(operators);
BENCHMARK(BM_StepLoweredAll)->Apply(operators);
BENCHMARK(BM_RecordProductsTorchScript)->Apply(operators);
BENCHMARK(BM_RecordProductsLowered)->Apply(operators);

}  // namespace
}  // namespace aten_recompute

BENCHMARK_MAIN();
