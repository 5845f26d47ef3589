#include "rules/user_rules.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/operator_node.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::OperatorNode;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const char* const kUserOperator = "aten_recompute_test::square";

std::shared_ptr<UserRule> empty_rule() {
  auto rule = std::make_shared<UserRule>();
  rule->rule.op = kUserOperator;
  return rule;
}

std::shared_ptr<UserRule> run_once() {
  auto rule = empty_rule();
  rule->facts.recomputable = false;
  return rule;
}

class UserRulesTest : public test::TorchTest {
 protected:
  ~UserRulesTest() override { add_user_rule(empty_rule(), /*replace=*/true); }
};

TEST_F(UserRulesTest, ARuleIsFoundForItsOperator) {
  const auto rule = run_once();
  EXPECT_TRUE(add_user_rule(rule, /*replace=*/false));
  EXPECT_EQ(user_rule(OperatorNode(kUserOperator)), rule.get());
  EXPECT_EQ(user_rule(OperatorNode("aten_recompute_test::triple")), nullptr);
}

TEST_F(UserRulesTest, ASecondRuleMustReplaceTheFirst) {
  EXPECT_TRUE(add_user_rule(run_once(), /*replace=*/false));
  const auto second = run_once();
  EXPECT_FALSE(add_user_rule(second, /*replace=*/false));
  EXPECT_NE(user_rule(OperatorNode(kUserOperator)), second.get());
  EXPECT_TRUE(add_user_rule(second, /*replace=*/true));
  EXPECT_EQ(user_rule(OperatorNode(kUserOperator)), second.get());
}

TEST_F(UserRulesTest, ARuleThatSaysNothingRemovesTheFormer) {
  add_user_rule(run_once(), /*replace=*/false);
  EXPECT_TRUE(add_user_rule(empty_rule(), /*replace=*/true));
  EXPECT_EQ(user_rule(OperatorNode(kUserOperator)), nullptr);
  EXPECT_EQ(registered_rules()->count(kUserOperator), 0U);
}

TEST_F(UserRulesTest, ASnapshotDoesNotSeeLaterRules) {
  const auto before = registered_rules();
  const auto rule = run_once();
  add_user_rule(rule, /*replace=*/false);
  const OperatorNode node(kUserOperator);
  {
    const UseRules use(before);
    EXPECT_EQ(user_rule(node), nullptr);
    {
      const UseRules now(registered_rules());
      EXPECT_EQ(user_rule(node), rule.get());
    }
    EXPECT_EQ(user_rule(node), nullptr);
  }
  EXPECT_EQ(user_rule(node), rule.get());
}

// ---- what a gradient of a rule is turned into ----

// Runs the check on `gradient` for an argument; no tensor stands for None.
at::Tensor checked(const at::Tensor& gradient, const at::Tensor& argument) {
  auto graph = test::parse(R"(
graph(%gradient : Tensor?, %x : Tensor):
  return ()
)");
  const torch::jit::WithInsertPoint guard(graph->return_node());
  graph->registerOutput(
      insert_gradient_check(graph->inputs()[0], graph->inputs()[1], "lib::op", "x"));
  const auto given = gradient.defined() ? c10::IValue(gradient) : c10::IValue();
  return test::run_graph(graph, {given, argument})[0].toTensor();
}

TEST_F(UserRulesTest, NoneIsAZeroGradient) {
  const auto x = at::randn({2, 3});
  EXPECT_TRUE(test::bitwise_equal(checked({}, x), at::zeros({2, 3})));
}

TEST_F(UserRulesTest, AGradientIsSummedToTheSizesOfItsArgument) {
  const auto gradient = at::randn({2, 3});
  EXPECT_TRUE(test::bitwise_equal(checked(gradient, at::randn({3})), gradient.sum({0})));
}

TEST_F(UserRulesTest, AGradientGetsTheTypeOfItsArgument) {
  const auto gradient = at::randn({2}, at::kDouble);
  EXPECT_TRUE(test::bitwise_equal(checked(gradient, at::randn({2})), gradient.to(at::kFloat)));
}

TEST_F(UserRulesTest, AGradientOfOtherSizesNamesOperatorAndArgument) {
  EXPECT_THAT([] { checked(at::randn({4}), at::randn({3})); },
              ThrowsMessage<std::exception>(HasSubstr("lib::op: the gradient of x has sizes [4]")));
}

TEST_F(UserRulesTest, AGradientThatIsCertainlyNoneNeedsNoCheck) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  return (%x)
)");
  EXPECT_EQ(
      insert_gradient_check(test::find_value(*graph, "none"), graph->inputs()[0], "lib::op", "x"),
      nullptr);
}

}  // namespace
}  // namespace aten_recompute
