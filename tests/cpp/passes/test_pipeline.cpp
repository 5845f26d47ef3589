#include "passes/pipeline.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "tests/cpp/support/inner_gradient.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using torch::jit::Graph;

class OutputRequiresGrad : public test::TorchTest {
 protected:
  // Returns a graph whose output is the gradient of sum(y) for x, where `body` computes %y from %x
  // and %w.
  static std::shared_ptr<Graph> gradient_of(const std::string& body, bool create_graph = true) {
    auto graph = test::parse("graph(%x : Tensor, %w : Tensor):\n" + body + R"(
  %none : NoneType = prim::Constant()
  %sum : Tensor = aten::sum(%y, %none)
  return (%sum)
)");
    auto* gradient = test::append_gradient(*graph, create_graph, /*retain_graph=*/create_graph);
    if (!create_graph)
      gradient->node()->i_(symbols::kWithoutGraph, 1);
    graph->eraseOutput(0);
    graph->registerOutput(gradient);
    return graph;
  }
};

TEST_F(OutputRequiresGrad, FollowsFromWhatTheFormulaReads) {
  const auto product = gradient_of("  %y : Tensor = aten::mul(%x, %w)");
  EXPECT_EQ(output_requires_grad(product, {true, true}), true);
  EXPECT_EQ(output_requires_grad(product, {true, false}), false);
  const auto relu = gradient_of("  %y : Tensor = aten::relu(%x)");
  EXPECT_EQ(output_requires_grad(relu, {true, false}), true);
  const auto negative = gradient_of("  %y : Tensor = aten::neg(%x)");
  EXPECT_EQ(output_requires_grad(negative, {true, true}), false);
}

TEST_F(OutputRequiresGrad, IsNotKnownOfAnOperatorWithoutAFormula) {
  const auto degrees = gradient_of("  %y : Tensor = aten::rad2deg(%x)");
  EXPECT_EQ(output_requires_grad(degrees, {true, false}), std::nullopt);
}

TEST_F(OutputRequiresGrad, IsNotKnownWhereTheGradientRaises) {
  const auto product = gradient_of("  %y : Tensor = aten::mul(%x, %w)");
  EXPECT_EQ(output_requires_grad(product, {false, true}), std::nullopt);
}

TEST_F(OutputRequiresGrad, IsFalseWithoutAGraph) {
  const auto product = gradient_of("  %y : Tensor = aten::mul(%x, %w)", /*create_graph=*/false);
  EXPECT_EQ(output_requires_grad(product, {true, true}), false);
}

}  // namespace
}  // namespace aten_recompute
