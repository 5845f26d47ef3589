#include "runtime/tape.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/autodiff/differentiate.h"
#include "passes/autodiff/tape_sources.h"
#include "passes/partition/extract.h"
#include "runtime/autograd_modes.h"
#include "runtime/tape_reach.h"
#include "tests/cpp/support/testing.h"

#include <torch/csrc/jit/runtime/autodiff.h>

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class TapeTest : public test::TorchTest {};

// Forward and backward of a region of tape operators, run as regions are run.
struct Taped {
  explicit Taped(const std::string& ir, size_t num_inputs = 1)
      : Taped(ir, std::vector<bool>(num_inputs, true)) {}
  Taped(const std::string& ir, const std::vector<bool>& requires_grad) {
    const auto graph = test::parse(ir);
    auto joint =
        differentiate(graph, requires_grad, std::vector<bool>(graph->outputs().size(), true));
    sources = number_tapes(joint);
    gradient = extract(joint);
  }

  std::vector<c10::IValue> forward(std::vector<c10::IValue> inputs) const {
    const WithoutAutograd guard;
    return test::run_graph(gradient.f, std::move(inputs));
  }
  std::vector<c10::IValue> backward(std::vector<c10::IValue> inputs) const {
    const WithoutAutograd guard;
    return test::run_graph(gradient.df, std::move(inputs));
  }

  // Runs the forward, and returns which of its results require grad in this call.
  std::vector<bool> require_grad(std::vector<c10::IValue> inputs) const {
    const TapeReach reach(&sources);
    forward(std::move(inputs));
    return reach.outputs();
  }

  torch::jit::Gradient gradient;
  TapeSources sources;
};

TEST_F(TapeTest, GradientsAreThoseOfAutograd) {
  const Taped taped(R"(
graph(%x : Tensor):
  %y : Tensor = aten_recompute_test::square(%x)
  return (%y)
)");
  const auto x = at::randn({4}).requires_grad_();
  const auto outputs = taped.forward({x});
  ASSERT_THAT(outputs, SizeIs(2));  // y and the tape
  EXPECT_TRUE(test::bitwise_equal(outputs[0].toTensor(), (x * x).detach()));
  const auto dy = at::randn({4});
  const auto dx = taped.backward({dy, outputs[1]})[0].toTensor();
  EXPECT_TRUE(test::bitwise_equal(dx, torch::autograd::grad({x * x}, {x}, {dy})[0]));
}

TEST_F(TapeTest, NothingLeaksIntoTheCallersAutograd) {
  const Taped taped(R"(
graph(%x : Tensor):
  %y : Tensor = aten_recompute_test::square(%x)
  return (%y)
)");
  const auto x = at::randn({4}).requires_grad_();
  const auto outputs = taped.forward({x});
  EXPECT_FALSE(outputs[0].toTensor().requires_grad());
  taped.backward({at::ones({4}), outputs[1]});
  EXPECT_FALSE(x.grad().defined());
}

TEST_F(TapeTest, UndefinedGradientsAreZeros) {
  const Taped taped(R"(
graph(%x : Tensor):
  %a : Tensor, %b : Tensor = aten_recompute_test::pair(%x)
  return (%a, %b)
)");
  const auto outputs = taped.forward({at::ones({2, 2})});
  const auto dx = taped.backward({c10::IValue(), at::ones({2, 2}), outputs[2]})[0].toTensor();
  EXPECT_TRUE(test::bitwise_equal(dx, at::full({2, 2}, 3.0)));
  const auto zero =
      taped.backward({c10::IValue(), c10::IValue(), taped.forward({at::ones({2, 2})})[2]})[0];
  EXPECT_TRUE(test::bitwise_equal(zero.toTensor(), at::zeros({2, 2})));
}

TEST_F(TapeTest, ListsMayGoInAndComeOut) {
  const Taped taped(R"(
graph(%x : Tensor, %y : Tensor):
  %list : Tensor[] = prim::ListConstruct(%x, %y)
  %joined : Tensor = aten_recompute_test::join(%list)
  %halves : Tensor[] = aten_recompute_test::halves(%joined)
  %a : Tensor, %b : Tensor = prim::ListUnpack(%halves)
  return (%a, %b)
)",
                    2);
  const auto x = at::randn({3});
  const auto y = at::randn({1});
  auto outputs = taped.forward({x, y});
  EXPECT_TRUE(test::bitwise_equal(outputs[1].toTensor(), at::cat({x.slice(0, 2), y})));
  std::vector<c10::IValue> inputs{at::full({2}, 1.0), at::full({2}, 2.0)};
  inputs.insert(inputs.end(), outputs.begin() + 2, outputs.end());
  const auto gradients = taped.backward(std::move(inputs));
  EXPECT_TRUE(test::bitwise_equal(gradients[0].toTensor(), at::tensor({1.0F, 1.0F, 2.0F})));
  EXPECT_TRUE(test::bitwise_equal(gradients[1].toTensor(), at::tensor({2.0F})));
}

// Only one of two list elements has a gradient.
TEST_F(TapeTest, AListElementMayHaveNoGradient) {
  const Taped taped(R"(
graph(%x : Tensor):
  %halves : Tensor[] = aten_recompute_test::halves(%x)
  %a : Tensor, %b : Tensor = prim::ListUnpack(%halves)
  %c : Tensor = aten_recompute_test::square(%b)
  return (%c)
)");
  auto outputs = taped.forward({at::ones({4})});
  std::vector<c10::IValue> inputs{at::ones({2})};
  inputs.insert(inputs.end(), outputs.begin() + 1, outputs.end());
  const auto dx = taped.backward(std::move(inputs))[0].toTensor();
  EXPECT_TRUE(test::bitwise_equal(dx, at::tensor({0.0F, 0.0F, 2.0F, 2.0F})));
}

// y requires no grad, so that it depends on the call whether the results do.
TEST_F(TapeTest, ACallTellsWhichResultsRequireGrad) {
  const Taped taped(R"(
graph(%y : Tensor, %x : Tensor, %first : bool):
  %a : Tensor, %b : Tensor = aten_recompute_test::choose(%y, %x, %first)
  return (%a, %b)
)",
                    std::vector<bool>{false, true, false});
  const auto x = at::ones({4});
  const auto y = at::ones({4});
  EXPECT_THAT(taped.require_grad({y, x, true}), ElementsAre(false, true));
  EXPECT_THAT(taped.require_grad({y, x, false}), ElementsAre(true, false));
}

// The second half of the list comes from x, which alone requires grad.
TEST_F(TapeTest, ACallTellsItOfLists) {
  const Taped taped(R"(
graph(%y : Tensor, %x : Tensor):
  %list : Tensor[] = prim::ListConstruct(%y, %x)
  %joined : Tensor = aten_recompute_test::join(%list)
  return (%joined)
)",
                    std::vector<bool>{false, true});
  EXPECT_THAT(taped.require_grad({at::ones({2}), at::ones({2})}), ElementsAre(true));
}

TEST_F(TapeTest, AResultMayBeUndefined) {
  const Taped taped(R"(
graph(%x : Tensor):
  %y : Tensor, %none : Tensor = aten_recompute_test::one_of_two(%x)
  return (%y, %none)
)");
  const auto outputs = taped.forward({at::ones({2})});
  EXPECT_FALSE(outputs[1].toTensor().defined());
  const auto dx = taped.backward({at::ones({2}), c10::IValue(), outputs[2]})[0].toTensor();
  EXPECT_TRUE(test::bitwise_equal(dx, at::full({2}, 2.0)));
}

// Autograd saves nothing for x * 3, and x for x * x.
TEST_F(TapeTest, OnlySavedTensorsStayAlive) {
  for (const bool saves : {false, true}) {
    const Taped taped(std::string(R"(
graph(%x : Tensor):
  %y : Tensor = aten_recompute_test::)") +
                      (saves ? "square" : "triple") + R"((%x)
  return (%y)
)");
    auto x = at::ones({4});
    const c10::weak_intrusive_ptr<c10::StorageImpl> storage(x.storage().getWeakStorageImpl());
    std::vector<c10::IValue> inputs{std::move(x)};
    const auto outputs = taped.forward(std::move(inputs));
    EXPECT_EQ(storage.expired(), !saves);
  }
}

}  // namespace
}  // namespace aten_recompute
