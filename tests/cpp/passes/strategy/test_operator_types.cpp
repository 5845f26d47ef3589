#include "passes/strategy/operator_types.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "tests/cpp/support/operator_node.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::OperatorNode;

class OperatorTypesTest : public test::TorchTest {};

using Names = std::vector<std::string>;

const OperatorTypes& defaults() {
  static const OperatorTypes types(std::nullopt, std::nullopt, /*recompute_random=*/false);
  return types;
}

TEST_F(OperatorTypesTest, PointwiseAndListedOperatorsAreRecomputableByDefault) {
  for (const char* name :
       {"aten::add.Tensor", "aten::add.Scalar", "aten::tanh_backward", "aten::relu", "aten::sum",
        "aten::contiguous", "aten_recompute::mark_layer", "aten_recompute::accumulate"}) {
    const OperatorNode node(name);
    EXPECT_TRUE(defaults().recomputable(node)) << name;
    EXPECT_TRUE(defaults().fusible(node)) << name;
    EXPECT_FALSE(defaults().compute_intensive(node)) << name;
  }
}

TEST_F(OperatorTypesTest, ProductsAreComputeIntensiveByDefault) {
  for (const char* name : {"aten::mm", "aten::linear"}) {
    const OperatorNode node(name);
    EXPECT_FALSE(defaults().recomputable(node)) << name;
    EXPECT_FALSE(defaults().fusible(node)) << name;
    EXPECT_TRUE(defaults().compute_intensive(node)) << name;
  }
}

TEST_F(OperatorTypesTest, OtherOperatorsAreNeither) {
  for (const char* name : {"aten::softmax.int", "aten::cumsum"}) {
    const OperatorNode node(name);
    EXPECT_FALSE(defaults().recomputable(node)) << name;
    EXPECT_FALSE(defaults().fusible(node)) << name;
    EXPECT_FALSE(defaults().compute_intensive(node)) << name;
  }
}

// It can be fused, but would draw other numbers in a second run.
TEST_F(OperatorTypesTest, RandomOperatorsRunAgainOnlyOnRequest) {
  const OperatorNode mask("aten_recompute::dropout_mask");
  EXPECT_TRUE(defaults().random(mask));
  EXPECT_TRUE(defaults().fusible(mask));
  EXPECT_FALSE(defaults().recomputable(mask));
  EXPECT_TRUE(
      OperatorTypes(std::nullopt, std::nullopt, /*recompute_random=*/true).recomputable(mask));
}

TEST_F(OperatorTypesTest, AListReplacesTheDefaults) {
  const OperatorTypes types(Names{"mm", "aten_recompute_test::square"}, Names{"relu"},
                            /*recompute_random=*/false);
  EXPECT_TRUE(types.recomputable(OperatorNode("aten::mm")));
  EXPECT_TRUE(types.recomputable(OperatorNode("aten_recompute_test::square")));
  EXPECT_FALSE(types.recomputable(OperatorNode("aten::sum")));
  EXPECT_TRUE(types.compute_intensive(OperatorNode("aten::relu")));
  EXPECT_FALSE(types.compute_intensive(OperatorNode("aten::mm")));
}

TEST_F(OperatorTypesTest, MarkersAreRecomputableWhateverTheListSays) {
  const OperatorTypes types(Names{}, std::nullopt, /*recompute_random=*/false);
  EXPECT_TRUE(types.recomputable(OperatorNode("aten_recompute::must_save")));
  EXPECT_FALSE(types.recomputable(OperatorNode("aten::relu")));
}

TEST_F(OperatorTypesTest, AnOperatorOnTapeIsJudgedByItsOwnName) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %w : Tensor):
  %y : Tensor, %tape : Any = aten_recompute::tape_forward(%x, %w)
  return (%y)
)");
  auto* tape = test::find_value(*graph, "y")->node();
  tape->g_(c10::attr::Subgraph, test::parse(R"(
graph(%x : Tensor, %w : Tensor):
  %y : Tensor = aten::mm(%x, %w)
  return (%y)
)"));
  EXPECT_EQ(listed_name(tape), "mm");
  EXPECT_TRUE(defaults().compute_intensive(tape));
  EXPECT_EQ(listed_name(OperatorNode("aten_recompute_test::square")),
            "aten_recompute_test::square");
}

TEST_F(OperatorTypesTest, OnlyCatAndItsAliasesConcatenate) {
  EXPECT_TRUE(defaults().concatenates(OperatorNode("aten::cat")));
  EXPECT_TRUE(defaults().concatenates(OperatorNode("aten::concat")));
  EXPECT_FALSE(defaults().concatenates(OperatorNode("aten::stack")));
}

}  // namespace
}  // namespace aten_recompute
