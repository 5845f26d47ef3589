#include "ir/dead_code.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class DeadCode : public test::TorchTest {};

std::shared_ptr<torch::jit::Graph> norm(const std::string& training) {
  return test::parse(R"(
graph(%x : Tensor, %m : Tensor):
  %none : NoneType = prim::Constant()
  %training : bool = prim::Constant[value=)" +
                     training + R"(]()
  %f : float = prim::Constant[value=0.5]()
  %y : Tensor = aten::batch_norm(%x, %none, %none, %m, %m, %training, %f, %f, %training)
  %z : Tensor = aten::relu(%y)
  return (%x)
)");
}

TEST_F(DeadCode, ANormInTrainingUpdatesItsStatistics) {
  const auto graph = norm("1");
  remove_dead_code(graph->block());
  EXPECT_THAT(test::listing(*graph),
              ElementsAre("y = aten::batch_norm(x, None, None, m, m, True, 0.5, 0.5, True)"));
}

TEST_F(DeadCode, ANormInEvaluationIsRemoved) {
  const auto graph = norm("0");
  remove_dead_code(graph->block());
  EXPECT_THAT(test::listing(*graph), IsEmpty());
}

TEST_F(DeadCode, RandomNumbersAreDrawn) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %c : bool):
  %none : NoneType = prim::Constant()
  %y : Tensor = prim::If(%c)
    block0():
      %a : Tensor = aten::bernoulli(%x, %none)
      %b : Tensor = aten::relu(%a)
      -> (%b)
    block1():
      -> (%x)
  return (%x)
)");
  remove_dead_code(graph->block());
  EXPECT_EQ(test::find_nodes(*graph, "aten::bernoulli").size(), 1);
  EXPECT_EQ(test::find_nodes(*graph, "aten::relu").size(), 0);
  EXPECT_EQ(test::find_nodes(*graph, "prim::Print").size(), 0);
}

TEST_F(DeadCode, EffectsFromTheEndOnDoNotCount) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %a : Tensor = aten::bernoulli(%x, %none)
  aten_recompute::backward_start()
  %b : Tensor = aten::bernoulli(%x, %none)
  return (%x)
)");
  remove_dead_code(graph->block(), test::find_nodes(*graph, "aten_recompute::backward_start")[0]);
  EXPECT_THAT(test::listing(*graph),
              ElementsAre("a = aten::bernoulli(x, None)", "aten_recompute::backward_start()"));
}

TEST_F(DeadCode, PinsKeepNodesFromPassesOfLibTorch) {
  const auto graph = norm("1");
  pin_effects(graph->block());
  torch::jit::EliminateDeadCode(graph->block());
  unpin_effects(graph->block());
  EXPECT_THAT(test::listing(*graph),
              ElementsAre("y = aten::batch_norm(x, None, None, m, m, True, 0.5, 0.5, True)"));
}

}  // namespace
}  // namespace aten_recompute
