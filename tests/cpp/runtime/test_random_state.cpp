#include "runtime/random_state.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "passes/partition/splice.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

class RandomState : public test::TorchTest {};

// The forward draws `n`, then `other` from the same generator. The backward draws n again.
std::shared_ptr<torch::jit::Graph> replaying() {
  auto joint = test::parse_joint({.num_inputs = 1, .num_outputs = 2, .gradient_inputs = {0}}, R"(
graph(%x : Tensor):
  %n : Tensor = aten_recompute_test::noise(%x)
  %other : Tensor = aten_recompute_test::noise(%x)
  aten_recompute::backward_start()
  %again : Tensor = aten::neg(%n)
  return (%n, %other, %again)
)");
  splice(joint, {});
  return joint.graph;
}

TEST_F(RandomState, AReplayDrawsTheNumbersOfTheFirstRun) {
  const auto values = test::run_graph(replaying(), {at::zeros({16})});
  EXPECT_TRUE(test::bitwise_equal(values[2].toTensor(), -values[0].toTensor()));
  EXPECT_FALSE(at::equal(values[1].toTensor(), values[0].toTensor()));
}

// With or without the replay, the generator continues from its state after `other`.
TEST_F(RandomState, AReplayRestoresTheGenerator) {
  const auto x = at::zeros({16});
  test::run_graph(replaying(), {x});
  const auto after_replay = at::rand({4});
  at::manual_seed(20);
  test::run_graph(test::parse(R"(
graph(%x : Tensor):
  %n : Tensor = aten_recompute_test::noise(%x)
  %other : Tensor = aten_recompute_test::noise(%x)
  return (%n, %other)
)"),
                  {x});
  EXPECT_TRUE(test::bitwise_equal(at::rand({4}), after_replay));
}

TEST_F(RandomState, SavingTheStateDrawsNothing) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %state : Any = aten_recompute::random_state(%x)
  return (%state)
)");
  const auto expected = at::rand({4});
  at::manual_seed(20);
  test::run_graph(graph, {at::zeros({1})});
  EXPECT_TRUE(test::bitwise_equal(at::rand({4}), expected));
}

TEST_F(RandomState, GeneratorsAreRestoredAtTheEndOfAScope) {
  const auto expected = at::rand({4});
  at::manual_seed(20);
  {
    const std::vector<c10::IValue> inputs{at::zeros({1}), c10::IValue(), 3};
    const RestoreGenerators restore(inputs);
    at::rand({100});
  }
  EXPECT_TRUE(test::bitwise_equal(at::rand({4}), expected));
}

TEST_F(RandomState, GeneratorsGoOnWhereAScopeDrawsNothing) {
  at::rand({100});
  const auto expected = at::rand({4});
  at::manual_seed(20);
  {
    const RestoreGenerators restore({}, /*draws_numbers=*/false);
    at::rand({100});  // as another thread does
  }
  EXPECT_TRUE(test::bitwise_equal(at::rand({4}), expected));
}

TEST_F(RandomState, GeneratorsAreRestoredAfterAnError) {
  const auto expected = at::rand({4});
  at::manual_seed(20);
  EXPECT_THROW(
      {
        const RestoreGenerators restore({});
        at::rand({100});
        throw std::runtime_error("inside");
      },
      std::runtime_error);
  EXPECT_TRUE(test::bitwise_equal(at::rand({4}), expected));
}

}  // namespace
}  // namespace aten_recompute
