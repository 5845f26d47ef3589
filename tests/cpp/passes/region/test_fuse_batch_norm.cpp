#include "passes/region/fuse_batch_norm.h"

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

class FuseBatchNorm : public test::TorchTest {};

const std::string kNorm = R"(
graph(%x : Tensor, %w : Tensor, %m : Tensor):
  %true : bool = prim::Constant[value=1]()
  %momentum : float = prim::Constant[value=0.5]()
  %eps : float = prim::Constant[value=0.25]()
  %half : float = prim::Constant[value=0.5]()
  %one : int = prim::Constant[value=1]()
  %n : Tensor = aten::batch_norm(%x, %w, %w, %m, %m, %true, %momentum, %eps, %true)
)";

std::shared_ptr<torch::jit::Graph> fused(const std::string& body) {
  auto graph = with_fused_batch_norms(*test::parse(kNorm + body));
  if (graph != nullptr)
    graph->lint();
  return graph;
}

TEST_F(FuseBatchNorm, ActivationsThatAreClampsBecomeBounds) {
  const std::string norm =
      "y = aten_recompute::clamped_batch_norm(x, w, w, m, m, True, 0.5, 0.25, True, ";
  const std::pair<const char*, const char*> cases[] = {
      {"aten::relu(%n)", "0., None)"},
      {"aten::relu6(%n)", "0., 6.)"},
      {"aten::hardtanh(%n, %half, %one)", "0.5, 1.)"},
  };
  for (const auto& [activation, bounds] : cases) {
    const auto graph = fused("  %y : Tensor = " + std::string(activation) + "\n  return (%y)\n");
    ASSERT_NE(graph, nullptr);
    EXPECT_THAT(test::listing(*graph), ElementsAre(norm + bounds));
  }
}

TEST_F(FuseBatchNorm, AResultThatSomethingElseReadsStays) {
  EXPECT_EQ(fused("  %y : Tensor = aten::relu(%n)\n  return (%y, %n)\n"), nullptr);
  EXPECT_EQ(fused("  %y : Tensor = aten::relu(%n)\n  %z : Tensor = aten::add(%y, %n, %one)\n"
                  "  return (%z)\n"),
            nullptr);
}

TEST_F(FuseBatchNorm, OtherActivationsStay) {
  EXPECT_EQ(fused("  %y : Tensor = aten::sigmoid(%n)\n  return (%y)\n"), nullptr);
  EXPECT_EQ(fused("  %y : Tensor = aten::relu(%x)\n  return (%y, %n)\n"), nullptr);
}

TEST_F(FuseBatchNorm, BoundsThatAreNotConstantStay) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %u : int):
  %none : NoneType = prim::Constant()
  %true : bool = prim::Constant[value=1]()
  %eps : float = prim::Constant[value=0.25]()
  %n : Tensor = aten::batch_norm(%x, %none, %none, %none, %none, %true, %eps, %eps, %true)
  %y : Tensor = aten::hardtanh(%n, %u, %u)
  return (%y)
)");
  EXPECT_EQ(with_fused_batch_norms(*graph), nullptr);
}

}  // namespace
}  // namespace aten_recompute
