#include "passes/manager/pass_manager.h"

#include <ATen/Functions.h>
#include <ATen/autocast_mode.h>
#include <aten_recompute/aten_recompute.h>

#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "rules/kernels/batch_norm.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;
using torch::jit::Module;

constexpr const char* kDisable = "RECOMPUTE_DISABLE_PASSES";

// What every pass has something to do with: a method that is called, a loop and an `if` on an
// attribute, a list that is filled, in-place operators, a dropout that does nothing, a view "as"
// another tensor, an `if` on data,
// a cast that returns its argument, which is read three times, a tensor that is
// written to after it was read, and tuples.
Module make_model() {
  at::manual_seed(1);
  auto model = test::make_module("EveryPass");
  model.register_module("first", test::make_linear(4, 8));
  model.register_module("second", test::make_linear(8, 8));
  model.register_buffer("count", at::zeros({}));
  model.register_attribute("deep", c10::BoolType::get(), true);
  model.define(R"(
def both(self, x):
    return x * 2, torch.relu(x)
def forward(self, x):
    h = self.first.forward(x)
    if self.deep:
        doubled, positive = self.both(h)
    else:
        doubled, positive = h, h
    positive = positive + 0.5
    features = []
    for i in range(2):
        positive += i
        features.append(torch.dropout(positive, 0.5, False))
    if bool(x.sum() > 1000.0):
        doubled = doubled * 2.0
    total = torch.cat(features, 1).sum(1, keepdim=True).expand_as(doubled)
    same = doubled.to(6)
    y = same * total + same.sigmoid() * doubled + self.count
    self.count.add_(1.0)
    return self.second.forward(torch.dropout(y, 0.25, True)).pow(2).sum()
)");
  return model;
}

// The loss, then the gradients of the parameters, of the second of two steps.
std::vector<at::Tensor> train(const Module& model) {
  auto trained = model;
  std::vector<at::Tensor> results;
  for (int step = 0; step < 2; ++step) {
    at::manual_seed(2);
    for (const auto& parameter : trained.parameters())
      parameter.mutable_grad() = at::Tensor();
    const auto loss = trained.forward({at::randn({5, 4})}).toTensor();
    loss.backward();
    results = {loss.detach()};
    for (const auto& parameter : trained.parameters())
      results.push_back(parameter.grad());
  }
  return results;
}

std::vector<at::Tensor> train_lowered() {
  return train(
      lower(make_model(), R"({"strategy": "budget", "memory_budget": 1.0, "exact": false})"));
}

// A model of one region.
Module make_small_model(const std::string& name) {
  auto model = test::make_module(name);
  model.register_module("first", test::make_linear(4, 8));
  model.define(R"(
def forward(self, x):
    return torch.tanh(self.first.forward(x))
)");
  return model;
}

// A call under autocast has a pass of its own.
void train_lowered_under_autocast() {
  auto lowered = lower(make_small_model("UnderAutocast"), R"({"strategy": "all"})");
  at::autocast::set_autocast_enabled(at::kCPU, true);
  lowered.forward({at::randn({5, 4})});
  at::autocast::set_autocast_enabled(at::kCPU, false);
}

// Operators run in slices where a budget cannot be kept otherwise. Nothing keeps this one.
void train_lowered_in_slices() {
  auto lowered = lower(make_small_model("InSlices"),
                       R"({"strategy": "budget", "memory_budget": "2B", "exact": false})");
  EXPECT_ANY_THROW(lowered.forward({at::randn({5, 4})}));
}

// Returns the names of all passes but those that nothing on this machine makes run: batch norms are
// fused where kernels of this library have the bits of LibTorch's.
std::set<std::string> passes_that_run() {
  std::set<std::string> names;
  for (const auto& info : all_passes())
    names.insert(info.name);
  EXPECT_EQ(names.size(), all_passes().size());
  if (!choose_batch_norm_kernels())
    names.erase("fuse_batch_norm");
  return names;
}

class PassManager : public test::TorchTest {
 protected:
  ~PassManager() override { set_pass_observer_for_testing({}); }

  test::ScopedEnv env_;
};

TEST_F(PassManager, EveryPassOfTheListRuns) {
  std::set<std::string> ran;
  set_pass_observer_for_testing(
      [&](Pass pass) { ran.insert(all_passes()[static_cast<size_t>(pass)].name); });
  train_lowered();
  train_lowered_under_autocast();
  train_lowered_in_slices();
  EXPECT_EQ(ran, passes_that_run());
}

TEST_F(PassManager, DisabledPassDoesNotRun) {
  env_.set(kDisable, "functionalize,alternatives");
  std::set<Pass> ran;
  set_pass_observer_for_testing([&](Pass pass) { ran.insert(pass); });
  train_lowered();
  train_lowered_under_autocast();
  train_lowered_in_slices();
  EXPECT_EQ(ran.count(Pass::kFunctionalize), 0U);
  EXPECT_EQ(ran.count(Pass::kAlternatives), 0U);
  EXPECT_EQ(ran.size(), passes_that_run().size() - 2);
}

TEST_F(PassManager, GradientsAreTheSameWithoutAnyOfThePassesThatCanBeDisabled) {
  const auto expected = train(make_model());
  for (const auto& info : all_passes()) {
    if (!info.can_be_disabled)
      continue;
    env_.set(kDisable, info.name);
    const auto results = train_lowered();
    ASSERT_EQ(results.size(), expected.size()) << info.name;
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_TRUE(test::bitwise_equal(results[i], expected[i])) << info.name << " " << i;
  }
}

TEST_F(PassManager, UnknownNameIsAnErrorThatNamesThePasses) {
  env_.set(kDisable, "functionalise");
  EXPECT_THAT([] { train_lowered(); },
              ThrowsMessage<std::exception>(
                  AllOf(HasSubstr("\"functionalise\" is no pass"), HasSubstr("functionalize, "))));
}

TEST_F(PassManager, PassThatIsNeededCannotBeDisabled) {
  env_.set(kDisable, "splice");
  EXPECT_THAT([] { train_lowered(); },
              ThrowsMessage<std::exception>(HasSubstr("\"splice\" is needed for right results")));
}

}  // namespace
}  // namespace aten_recompute
