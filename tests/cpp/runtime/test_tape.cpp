#include "runtime/tape.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/autodiff/differentiate.h"
#include "passes/partition/extract.h"
#include "runtime/autograd_modes.h"
#include "tests/cpp/support/testing.h"

#include <torch/csrc/jit/runtime/autodiff.h>

namespace aten_recompute {
namespace {

using ::testing::SizeIs;

class TapeTest : public test::TorchTest {};

// Forward and backward of a region of tape operators, run as regions are run.
struct Taped {
  explicit Taped(const std::string& ir, size_t num_inputs = 1) {
    const auto graph = test::parse(ir);
    const std::vector<bool> vjps(graph->outputs().size(), true);
    gradient = extract(differentiate(graph, std::vector<bool>(num_inputs, true), vjps));
  }

  std::vector<c10::IValue> forward(std::vector<c10::IValue> inputs) const {
    const WithoutAutograd guard;
    return test::run_graph(gradient.f, std::move(inputs));
  }
  std::vector<c10::IValue> backward(std::vector<c10::IValue> inputs) const {
    const WithoutAutograd guard;
    return test::run_graph(gradient.df, std::move(inputs));
  }

  torch::jit::Gradient gradient;
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
