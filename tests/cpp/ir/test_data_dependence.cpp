#include "ir/data_dependence.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/operator_node.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_value;
using test::OperatorNode;

class DataDependence : public test::TorchTest {};

TEST_F(DataDependence, OperatorsWithATagOrAFactDependOnData) {
  EXPECT_TRUE(has_sizes_of_data(OperatorNode("aten::nonzero")));        // PyTorch's tag
  EXPECT_TRUE(has_sizes_of_data(OperatorNode("aten::masked_select")));  // PyTorch's tag
  EXPECT_TRUE(has_sizes_of_data(OperatorNode("aten::one_hot")));        // the table of facts
  EXPECT_FALSE(has_sizes_of_data(OperatorNode("aten::mm")));
  EXPECT_FALSE(has_sizes_of_data(OperatorNode("aten::size")));
}

TEST_F(DataDependence, AnOperatorOfAnotherLibraryIsKnownIfItHasAMetaKernel) {
  EXPECT_TRUE(has_sizes_of_data(OperatorNode("aten_recompute_test::square")));
  EXPECT_FALSE(has_sizes_of_data(OperatorNode("aten_recompute_test::probe")));
}

TEST_F(DataDependence, ANodeDependsOnDataIfANodeInItsBlocksDoes) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %b : bool):
  %y : Tensor = prim::If(%b)
    block0():
      %inner : Tensor = aten::nonzero(%x)
      -> (%inner)
    block1():
      -> (%x)
  %z : Tensor = prim::If(%b)
    block0():
      %other : Tensor = aten::relu(%x)
      -> (%other)
    block1():
      -> (%x)
  return (%y, %z)
)");
  EXPECT_TRUE(has_sizes_of_data(find_value(*graph, "y")->node()));
  EXPECT_FALSE(has_sizes_of_data(find_value(*graph, "z")->node()));
}

TEST_F(DataDependence, ATapeDependsOnDataIfItsOperatorDoes) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %y : Tensor, %tape : Any = aten_recompute::tape_forward(%x)
  return (%y)
)");
  auto* tape = find_value(*graph, "y")->node();
  auto runs = [&](const std::string& op) {
    tape->g_(c10::attr::Subgraph, test::parse("graph(%x : Tensor):\n  %y : Tensor = aten::" + op +
                                              "(%x)\n  return (%y)\n"));
    return has_sizes_of_data(tape);
  };
  EXPECT_TRUE(runs("nonzero"));
  EXPECT_FALSE(runs("relu"));
}

// Indexing with a mask is not divided into slices (passes/region/rows_of_shapes.cpp).
TEST_F(DataDependence, AStretchInSlicesDoesNotDependOnData) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %i : Tensor?[]):
  %y : Tensor = aten_recompute::sliced(%x, %i)
  return (%y)
)");
  auto* sliced = find_value(*graph, "y")->node();
  sliced->g_(c10::attr::Subgraph, test::parse("graph(%x : Tensor, %i : Tensor?[]):\n"
                                              "  %y : Tensor = aten::index(%x, %i)\n"
                                              "  return (%y)\n"));
  const c10::List<std::optional<at::Tensor>> list{at::ones({2}, at::kLong)};
  EXPECT_FALSE(depends_on_data(sliced, {at::randn({3}), list}));
}

TEST_F(DataDependence, IndexingDependsOnDataIfAnIndexIsAMask) {
  const OperatorNode index("aten::index.Tensor");
  const auto x = at::randn({3});
  auto by = [&](const at::Tensor& indices) {
    const c10::List<std::optional<at::Tensor>> list{std::optional<at::Tensor>(indices)};
    return depends_on_data(index, {x, list});
  };
  EXPECT_TRUE(by(x > 0));
  EXPECT_TRUE(by(at::ones({3}, at::kByte)));
  EXPECT_FALSE(by(at::ones({2}, at::kLong)));
  EXPECT_FALSE(by(at::Tensor()));
  EXPECT_TRUE(has_sizes_of_data(index));
}

TEST_F(DataDependence, AnUnknownListOfIndicesMayHoldAMask) {
  EXPECT_TRUE(depends_on_data(OperatorNode("aten::index.Tensor"), {at::randn({3}), c10::IValue()}));
}

TEST_F(DataDependence, OperandsOfOtherOperatorsDoNotMatter) {
  EXPECT_FALSE(depends_on_data(OperatorNode("aten::relu"), {at::ones({3}, at::kBool)}));
}

}  // namespace
}  // namespace aten_recompute
