// One lowered module, called from several threads.
#include <aten_recompute/aten_recompute.h>

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>

#include <thread>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using torch::jit::Module;

class Threads : public test::TorchTest {};

constexpr int kThreads = 8;
constexpr int kCalls = 20;

Module make_two_layers() {
  auto model = test::make_module("Model");
  model.register_module("first", test::make_linear(4, 8));
  model.register_module("second", test::make_linear(8, 3));
  model.define(R"(
def forward(self, x):
    h = torch.tanh(torch.relu(self.first.forward(x)))
    return self.second.forward(h).pow(2).sum()
)");
  return model;
}

std::vector<at::Tensor> parameter_list(const Module& module) {
  std::vector<at::Tensor> parameters;
  for (const auto& parameter : module.parameters()) {
    parameters.push_back(parameter);
  }
  return parameters;
}

// Calls `work(thread)` in every thread and returns the messages of the exceptions.
std::vector<std::string> in_threads(const std::function<void(int)>& work) {
  std::vector<std::string> errors(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      try {
        work(thread);
      } catch (const std::exception& error) {
        errors[thread] = error.what();
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  return errors;
}

// The first calls race to compile. Every thread has its own inputs and gradients.
TEST_F(Threads, EveryThreadGetsItsOwnGradients) {
  for (const char* options :
       {R"({"strategy": "none"})", R"({"strategy": "all"})", R"({"strategy": "segments"})"}) {
    auto model = make_two_layers();
    auto lowered = lower(model, options);
    const auto parameters = parameter_list(model);
    std::vector<at::Tensor> inputs;
    std::vector<torch::autograd::variable_list> expected;
    for (int thread = 0; thread < kThreads; ++thread) {
      inputs.push_back(at::randn({5, 4}));
      expected.push_back(
          torch::autograd::grad({model.forward({inputs.back()}).toTensor()}, parameters));
    }
    std::vector<int> wrong(kThreads, 0);
    const auto errors = in_threads([&](int thread) {
      auto mine = lowered;
      for (int call = 0; call < kCalls; ++call) {
        const auto loss = mine.forward({inputs[thread]}).toTensor();
        const auto gradients = torch::autograd::grad({loss}, parameters);
        for (size_t i = 0; i < gradients.size(); ++i) {
          wrong[thread] += test::bitwise_equal(gradients[i], expected[thread][i]) ? 0 : 1;
        }
      }
    });
    EXPECT_THAT(errors, ::testing::Each("")) << options;
    EXPECT_THAT(wrong, ::testing::Each(0)) << options;
  }
}

// Threads differ in ranks and in which inputs require grad, so each compiles a specialization.
TEST_F(Threads, ThreadsCompileDifferentSpecializations) {
  auto model = make_two_layers();
  auto lowered = lower(model, R"({"strategy": "all"})");
  const auto parameters = parameter_list(model);
  std::vector<int> wrong(kThreads, 0);
  std::vector<at::Tensor> inputs;
  std::vector<at::Tensor> expected;
  for (int thread = 0; thread < kThreads; ++thread) {
    std::vector<int64_t> sizes(1 + thread % 3, 2);
    sizes.push_back(4);
    inputs.push_back(at::randn(sizes).requires_grad_(thread % 2 == 0));
    expected.push_back(
        torch::autograd::grad({model.forward({inputs.back()}).toTensor()}, {parameters[0]})[0]);
  }
  const auto errors = in_threads([&](int thread) {
    auto mine = lowered;
    for (int call = 0; call < kCalls; ++call) {
      const auto loss = mine.forward({inputs[thread]}).toTensor();
      const auto gradient = torch::autograd::grad({loss}, {parameters[0]})[0];
      wrong[thread] += test::bitwise_equal(gradient, expected[thread]) ? 0 : 1;
    }
  });
  EXPECT_THAT(errors, ::testing::Each(""));
  EXPECT_THAT(wrong, ::testing::Each(0));
}

// All threads run the retained backward of one forward at once.
TEST_F(Threads, ARetainedGraphIsWalkedBySeveralThreads) {
  auto model = make_two_layers();
  auto lowered = lower(model, R"({"strategy": "all"})");
  const auto parameters = parameter_list(model);
  const auto x = at::randn({5, 4});
  const auto expected = torch::autograd::grad({model.forward({x}).toTensor()}, parameters);
  const auto loss = lowered.forward({x}).toTensor();
  std::vector<int> wrong(kThreads, 0);
  const auto errors = in_threads([&](int thread) {
    for (int call = 0; call < kCalls; ++call) {
      const auto gradients = torch::autograd::grad({loss}, parameters, {}, /*retain_graph=*/true);
      for (size_t i = 0; i < gradients.size(); ++i) {
        wrong[thread] += test::bitwise_equal(gradients[i], expected[i]) ? 0 : 1;
      }
    }
  });
  EXPECT_THAT(errors, ::testing::Each(""));
  EXPECT_THAT(wrong, ::testing::Each(0));
}

}  // namespace
}  // namespace aten_recompute
