#include "passes/autodiff/put_on_tape.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_value;
using test::listing;
using ::testing::ElementsAre;

class PutOnTape : public test::TorchTest {};

TEST_F(PutOnTape, TheOperatorMovesIntoASubgraphWithATapeAsLastResult) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %w : Tensor):
  %y : Tensor = aten::mul(%x, %w)
  %z : Tensor = aten::relu(%y)
  return (%z)
)");
  GradientSums sums(*graph);
  sums.require(find_value(*graph, "w"));
  auto* node = find_value(*graph, "y")->node();
  node->i_(symbols::kLayer, 3);
  const auto* tape = put_on_tape(node, sums);
  graph->lint();
  EXPECT_THAT(listing(*graph),
              ElementsAre("y, tape = aten_recompute::tape_forward(x, w)", "z = aten::relu(y)"));
  EXPECT_THAT(listing(*tape->g(c10::attr::Subgraph)), ElementsAre("y = aten::mul($0, $1)"));
  EXPECT_THAT(tape->is(symbols::kRequiresGrad), ElementsAre(0, 1));
  EXPECT_EQ(tape->i(symbols::kLayer), 3);
  EXPECT_TRUE(sums.requires_grad(find_value(*graph, "y")));
}

TEST_F(PutOnTape, EachOperandIsAnInputOfItsOwn) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %y : Tensor = aten::mul(%x, %x)
  return (%y)
)");
  GradientSums sums(*graph);
  sums.require(find_value(*graph, "x"));
  const auto* tape = put_on_tape(find_value(*graph, "y")->node(), sums);
  EXPECT_EQ(tape->inputs().size(), 2U);
  EXPECT_THAT(listing(*tape->g(c10::attr::Subgraph)), ElementsAre("y = aten::mul($0, $1)"));
}

TEST_F(PutOnTape, OutputsWithoutAGradientDoNotRequireOne) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %dim : int, %no : bool):
  %values : Tensor, %indices : Tensor = aten::sort(%x, %dim, %no)
  return (%values, %indices)
)");
  GradientSums sums(*graph);
  sums.require(find_value(*graph, "x"));
  put_on_tape(find_value(*graph, "values")->node(), sums);
  EXPECT_TRUE(sums.requires_grad(find_value(*graph, "values")));
  EXPECT_FALSE(sums.requires_grad(find_value(*graph, "indices")));
}

// ---- the backward ----

TEST_F(PutOnTape, TheBackwardReturnsGradientsOfInputsThatRequireOne) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %w : Tensor, %dp : Tensor):
  %p : Tensor, %q : Tensor = aten_recompute_test::pair(%w)
  return (%p)
)");
  GradientSums sums(*graph);
  sums.require(find_value(*graph, "w"));
  auto* tape = put_on_tape(find_value(*graph, "p")->node(), sums);
  graph->setInsertPoint(graph->return_node());
  sums.add(find_value(*graph, "p"), find_value(*graph, "dp"));
  insert_tape_backward(tape, sums);
  EXPECT_THAT(listing(*graph), ElementsAre("p, q, tape = aten_recompute::tape_forward(w)",
                                           "$0 = aten_recompute::tape_backward(tape, dp, None)"));
  EXPECT_EQ(sums.gradient_of(find_value(*graph, "w"))->node()->kind(), symbols::kTapeBackward);
}

TEST_F(PutOnTape, WithoutAGradientThereIsNoBackward) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %y : Tensor = aten_recompute_test::square(%x)
  return (%y)
)");
  GradientSums sums(*graph);
  sums.require(find_value(*graph, "x"));
  auto* tape = put_on_tape(find_value(*graph, "y")->node(), sums);
  graph->setInsertPoint(graph->return_node());
  insert_tape_backward(tape, sums);
  EXPECT_THAT(listing(*graph), ElementsAre("y, tape = aten_recompute::tape_forward(x)"));
  EXPECT_EQ(sums.gradient_of(find_value(*graph, "x")), nullptr);
}

}  // namespace
}  // namespace aten_recompute
