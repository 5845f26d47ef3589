#include "ir/registered_facts.h"

#include <aten_recompute/register_rule.h>
#include <torch/csrc/jit/ir/ir.h>

#include "ir/node_traits.h"
#include "tests/cpp/support/operator_node.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::OperatorNode;

const char* const kOperator = "aten_recompute_test::square";

class RegisteredFactsTest : public test::TorchTest {
 protected:
  ~RegisteredFactsTest() override { register_rule(kOperator, {.replace = true}); }
};

TEST_F(RegisteredFactsTest, NothingIsKnownOfAnOperatorWithoutARule) {
  EXPECT_EQ(registered_facts(OperatorNode(kOperator)), nullptr);
  EXPECT_EQ(registered_facts(OperatorNode("aten::relu")), nullptr);
}

TEST_F(RegisteredFactsTest, WhatARuleSaysIsFoundForItsOperatorOnly) {
  register_rule(kOperator, {.random = true, .recomputable = false});
  const auto* facts = registered_facts(OperatorNode(kOperator));
  ASSERT_NE(facts, nullptr);
  EXPECT_EQ(facts->random, true);
  EXPECT_FALSE(facts->recomputable);
  EXPECT_FALSE(facts->has_gradients);
  EXPECT_EQ(registered_facts(OperatorNode("aten_recompute_test::triple")), nullptr);
}

TEST_F(RegisteredFactsTest, QuestionsAboutNodesFollowTheRule) {
  const OperatorNode square(kOperator);
  EXPECT_TRUE(may_be_random(square));
  EXPECT_TRUE(may_run_again(square));
  register_rule(kOperator, {.random = false, .recomputable = false});
  EXPECT_FALSE(may_be_random(square));
  EXPECT_FALSE(may_run_again(square));
  EXPECT_TRUE(updates_hidden_state(square));
}

TEST_F(RegisteredFactsTest, ARuleOverrulesATag) {
  const OperatorNode noise("aten_recompute_test::noise");
  EXPECT_TRUE(is_random(noise));
  register_rule("aten_recompute_test::noise", {.random = false});
  EXPECT_FALSE(is_random(noise));
  register_rule("aten_recompute_test::noise", {.replace = true});
  EXPECT_TRUE(is_random(noise));
}

}  // namespace
}  // namespace aten_recompute
