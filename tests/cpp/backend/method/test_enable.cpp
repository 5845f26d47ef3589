// The C++ API: enable() and disable().
#include <aten_recompute/aten_recompute.h>

#include <ATen/Functions.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/jit.h>

#include <nlohmann/json.hpp>

#include <memory>
#include <sstream>
#include <stdexcept>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::jit::Module;

class Enable : public test::TorchTest {};

Module make_plain_model() {
  return test::make_two_layers(R"(
def encode(self, x):
    return torch.relu(self.first.forward(x))
def forward(self, x):
    return self.second.forward(torch.tanh(self.encode(x)))
)");
}

// Returns the gradient of the input after a step.
at::Tensor step(Module& module) {
  at::manual_seed(2);
  auto x = at::rand({5, 4}).requires_grad_();
  module.forward({x}).toTensor().square().sum().backward();
  return x.grad();
}

size_t num_specializations(const std::string& report) {
  return nlohmann::json::parse(report)["methods"][0]["specialisations"].size();
}

TEST_F(Enable, AModuleTrainsAsBeforeAndIsTheSame) {
  auto model = make_plain_model();
  const auto expected = step(model);
  const auto type = model.type();
  enable(model, R"({"strategy": "all"})");
  for (int call = 0; call < 4; ++call)
    EXPECT_TRUE(at::equal(step(model), expected));
  EXPECT_EQ(model.type(), type);
  EXPECT_EQ(num_specializations(report(model)), 1);
  EXPECT_TRUE(is_enabled(model));
  EXPECT_TRUE(disable(model));
  EXPECT_FALSE(disable(model));
  EXPECT_TRUE(at::allclose(step(model), expected));
  EXPECT_THAT([&] { report(model); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("not a lowered module")));
}

TEST_F(Enable, WhatIsSavedIsPlain) {
  auto model = make_plain_model();
  enable(model, R"({"strategy": "all"})");
  const auto expected = step(model);
  std::stringstream file;
  model.save(file);
  auto loaded = torch::jit::load(file);
  EXPECT_FALSE(is_enabled(loaded));
  EXPECT_TRUE(at::equal(step(loaded), expected));
}

TEST_F(Enable, CallersThatRanBeforeRunTheMethodPlanned) {
  auto model = make_plain_model();
  for (int call = 0; call < 4; ++call)
    step(model);
  enable(model, R"({"strategy": "all"})", {"encode"});
  step(model);
  EXPECT_EQ(num_specializations(report(model)), 1);
}

TEST_F(Enable, AFunctionTrainsAsBefore) {
  const auto unit = torch::jit::compile(R"(
def inner(x, y):
    return torch.tanh(x * y).sum()
def outer(x, y):
    return inner(x, y) * 2
)");
  auto& inner = unit->get_function("inner");
  const auto gradient = [&](const char* name) {
    at::manual_seed(3);
    auto x = at::rand({6}).requires_grad_();
    unit->get_function(name)({x, at::rand({6})}).toTensor().backward();
    return x.grad();
  };
  const auto expected = gradient("inner");
  const auto expected_outer = gradient("outer");
  enable(inner, R"({"strategy": "all"})", unit.get());
  for (int call = 0; call < 3; ++call) {
    EXPECT_TRUE(at::equal(gradient("inner"), expected));
    EXPECT_TRUE(at::allclose(gradient("outer"), expected_outer));
  }
  EXPECT_EQ(num_specializations(report(inner)), 1);
  EXPECT_TRUE(disable(inner, unit.get()));
  EXPECT_FALSE(is_enabled(inner));
}

TEST_F(Enable, AModuleThatIsGoneLeavesNoMemory) {
  c10::weak_intrusive_ptr<c10::TensorImpl> weight{c10::intrusive_ptr<c10::TensorImpl>()};
  {
    auto model = make_plain_model();
    enable(model, R"({"strategy": "all"})");
    step(model);
    weight = c10::weak_intrusive_ptr<c10::TensorImpl>(
        model.attr("first").toModule().attr("weight").toTensor().getIntrusivePtr());
  }
  release_memory();
  EXPECT_TRUE(weight.expired());
}

TEST_F(Enable, NothingIsEnabledWhereSomethingIsWrong) {
  auto model = make_plain_model();
  EXPECT_THAT(
      [&] {
        enable(model, "", {"forward", "encod"});
      },
      ThrowsMessage<std::invalid_argument>(
          AllOf(HasSubstr("no method \"encod\" to enable"), HasSubstr("\"encode\""))));
  EXPECT_THAT([&] { enable(model, R"({"strategy": "al"})"); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("did you mean \"all\"")));
  EXPECT_THAT([&] { enable(lower(model)); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("lowered already")));
  EXPECT_FALSE(is_enabled(model));
}

}  // namespace
}  // namespace aten_recompute
