#include "rules/recomputability.h"

#include <aten_recompute/register_rule.h>
#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "tests/cpp/support/operator_node.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_value;
using test::OperatorNode;

const char* const kOperator = "aten_recompute_test::triple";

class Recomputability : public test::TorchTest {
 protected:
  ~Recomputability() override { register_rule(kOperator, {.replace = true}); }
};

// A node of this kind that runs `op` in a subgraph.
std::shared_ptr<torch::jit::Graph> running(const std::string& kind, const std::string& op) {
  const auto graph =
      test::parse("graph(%x : Tensor):\n  %y : Tensor = " + kind + "(%x)\n  return (%y)\n");
  find_value(*graph, "y")
      ->node()
      ->g_(c10::attr::Subgraph,
           test::parse("graph(%x : Tensor):\n  %y : Tensor = " + op + "(%x)\n  return (%y)\n"));
  return graph;
}

RecomputeVeto veto_running(const std::string& kind, const std::string& op) {
  return recompute_veto(find_value(*running(kind, op), "y")->node());
}

TEST_F(Recomputability, OperatorsWithoutEffectsRunAgain) {
  EXPECT_EQ(recompute_veto(OperatorNode("aten::mm")), RecomputeVeto::kNone);
  EXPECT_EQ(recompute_veto(OperatorNode("aten::bernoulli")), RecomputeVeto::kNone);
  EXPECT_EQ(recompute_veto(OperatorNode(kOperator)), RecomputeVeto::kNone);
}

TEST_F(Recomputability, OperatorsThatWriteRunOnce) {
  EXPECT_EQ(recompute_veto(OperatorNode("aten::relu_")), RecomputeVeto::kMutates);
  EXPECT_EQ(recompute_veto(OperatorNode("aten::add.out")), RecomputeVeto::kMutates);
}

// A node that normalizes %x, and is in training or not.
std::shared_ptr<torch::jit::Graph> norm(const std::string& training, const std::string& mean) {
  return test::parse(R"(
graph(%x : Tensor, %m : Tensor):
  %none : NoneType = prim::Constant()
  %training : bool = prim::Constant[value=)" +
                     training + R"(]()
  %f : float = prim::Constant[value=0.5]()
  %s : Tensor = aten_recompute::snapshot(%m)
  %y : Tensor, %a : Tensor, %b : Tensor, %r : Tensor, %i : int = aten_recompute::batch_norm()" +
                     "%x, %none, %none, %" + mean + ", %" + mean +
                     ", %training, %f, %f, %training, %none, %none)\n  return (%y)\n");
}

TEST_F(Recomputability, RunningStatisticsNeedAReplayRule) {
  const auto graph = norm("1", "m");
  EXPECT_EQ(recompute_veto(find_value(*graph, "y")->node()), RecomputeVeto::kNone);
  EXPECT_EQ(recompute_veto(OperatorNode("aten::instance_norm")), RecomputeVeto::kMutates);
}

// Another call may have updated them before the backward.
TEST_F(Recomputability, RunningStatisticsOfEvaluationAreReadOnce) {
  const auto of_caller = norm("0", "m");
  EXPECT_EQ(recompute_veto(find_value(*of_caller, "y")->node()), RecomputeVeto::kReadsWritten);
  const auto of_copies = norm("0", "s");
  EXPECT_EQ(recompute_veto(find_value(*of_copies, "y")->node()), RecomputeVeto::kNone);
  EXPECT_EQ(recompute_veto(find_value(*of_copies, "s")->node()), RecomputeVeto::kReadsWritten);
}

TEST_F(Recomputability, ControlFlowRunsOnce) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %b : bool):
  %y : Tensor = prim::If(%b)
    block0():
      -> (%x)
    block1():
      -> (%x)
  return (%y)
)");
  EXPECT_EQ(recompute_veto(find_value(*graph, "y")->node()), RecomputeVeto::kControlFlow);
}

TEST_F(Recomputability, ARuleMayForbidASecondRun) {
  register_rule(kOperator, {.recomputable = false});
  EXPECT_EQ(recompute_veto(OperatorNode(kOperator)), RecomputeVeto::kRule);
  EXPECT_EQ(veto_running("aten_recompute::tape_forward", kOperator), RecomputeVeto::kRule);
}

TEST_F(Recomputability, WhatIsMarkClobberedReadsCannotBeReadAgain) {
  const OperatorNode node("aten::mm");
  node->i_(symbols::kReadsWritten, 1);
  EXPECT_EQ(recompute_veto(node), RecomputeVeto::kReadsWritten);
}

TEST_F(Recomputability, ATapeRunsAgainIfItsOperatorMay) {
  EXPECT_EQ(veto_running("aten_recompute::tape_forward", kOperator), RecomputeVeto::kNone);
}

// It can only write to what it made itself.
TEST_F(Recomputability, AUsersFunctionMayWriteInPlace) {
  EXPECT_EQ(veto_running("aten_recompute::rule_function", "aten::relu_"), RecomputeVeto::kNone);
}

TEST_F(Recomputability, RandomNumbersAreFoundInATape) {
  EXPECT_TRUE(draws_random_numbers(OperatorNode("aten::bernoulli")));
  EXPECT_FALSE(draws_random_numbers(OperatorNode("aten::mm")));
  const auto drawing = running("aten_recompute::tape_forward", "aten_recompute_test::noise");
  EXPECT_TRUE(draws_random_numbers(find_value(*drawing, "y")->node()));
  const auto calm = running("aten_recompute::tape_forward", "aten::relu");
  EXPECT_FALSE(draws_random_numbers(find_value(*calm, "y")->node()));
}

}  // namespace
}  // namespace aten_recompute
