#include "passes/autodiff/hoist_metadata.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::backward_listing;
using test::forward_listing;
using ::testing::ElementsAre;

class HoistMetadata : public test::TorchTest {};

TEST_F(HoistMetadata, SizesOfForwardValuesAreReadInTheForward) {
  auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %false : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %h : Tensor = aten::relu(%x)
  %y : Tensor = aten::sum(%h, %none)
  aten_recompute::backward_start()
  %size : int[] = aten::size(%h)
  %dtype : int = prim::dtype(%x)
  %wide : Tensor = aten::expand(%dy, %size, %false)
  %dx : Tensor = aten_recompute::reduce_grad(%wide, %size, %dtype)
  return (%y, %dx)
)");
  hoist_metadata(joint);
  joint.graph->lint();
  // Each read directly follows the node whose result it reads.
  EXPECT_THAT(forward_listing(joint),
              ElementsAre("dtype = prim::dtype(x)", "h = aten::relu(x)", "size = aten::size(h)",
                          "y = aten::sum(h, None)"));
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("wide = aten::expand(dy, size, False)",
                          "dx = aten_recompute::reduce_grad(wide, size, dtype)"));
}

TEST_F(HoistMetadata, ArithmeticOnSizesMovesWithThem) {
  auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %dim : int = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %y : Tensor = aten::mean(%x, %none)
  aten_recompute::backward_start()
  %rows : int = aten::size(%x, %dim)
  %twice : int = aten::mul(%rows, %rows)
  %many : bool = aten::gt(%twice, %dim)
  %scale : int = prim::If(%many)
    block0():
      -> (%twice)
    block1():
      -> (%rows)
  %dx : Tensor = aten::div(%dy, %scale)
  return (%y, %dx)
)");
  hoist_metadata(joint);
  joint.graph->lint();
  EXPECT_THAT(backward_listing(joint), ElementsAre("dx = aten::div(dy, scale)"));
}

TEST_F(HoistMetadata, ReadsOfOneValueKeepTheirOrder) {
  auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h : Tensor = aten::relu(%x)
  %y : Tensor = aten::neg(%h)
  aten_recompute::backward_start()
  %a : int = aten::size(%h, %zero)
  %d : Tensor = aten::neg(%dy)
  %b : int = aten::dim(%h)
  %c : int = aten::mul(%a, %b)
  %e : int = aten::dim(%x)
  %dx : Tensor = aten::mul(%d, %c)
  %dz : Tensor = aten::mul(%dx, %e)
  return (%y, %dz)
)");
  hoist_metadata(joint);
  joint.graph->lint();
  EXPECT_THAT(forward_listing(joint),
              ElementsAre("e = aten::dim(x)", "h = aten::relu(x)", "a = aten::size(h, 0)",
                          "b = aten::dim(h)", "c = aten::mul(a, b)", "y = aten::neg(h)"));
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("d = aten::neg(dy)", "dx = aten::mul(d, c)", "dz = aten::mul(dx, e)"));
}

// To insert them one by one behind the same node takes minutes: LibTorch then numbers all nodes
// again and again.
TEST_F(HoistMetadata, ManyNodesMoveBehindOneNode) {
  constexpr size_t kCount = 50'000;
  auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %h : Tensor = aten::relu(%x)
  %y : Tensor = aten::neg(%h)
  aten_recompute::backward_start()
  %dx : Tensor = aten::neg(%dy)
  return (%y, %dx)
)");
  auto* h = test::find_value(*joint.graph, "h");
  const torch::jit::WithInsertPoint guard(joint.backward_start->next());
  for (size_t i = 0; i < kCount; ++i)
    joint.graph->insert(c10::aten::dim, {h});
  hoist_metadata(joint);
  EXPECT_EQ(joint.forward_nodes().size(), kCount + 2);
  EXPECT_EQ(joint.backward_nodes().size(), 1);
  EXPECT_EQ(h->node()->next()->kind(), c10::aten::dim);
  EXPECT_TRUE(h->node()->next()->isBefore(joint.backward_start));
}

TEST_F(HoistMetadata, SizesOfGradientsAreReadInTheBackward) {
  auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %y : Tensor = aten::relu(%x)
  aten_recompute::backward_start()
  %d : Tensor = aten::neg(%dy)
  %size : int[] = aten::size(%d)
  %dx : Tensor = aten::reshape(%d, %size)
  return (%y, %dx)
)");
  const auto before = joint.graph->toString();
  hoist_metadata(joint);
  EXPECT_EQ(joint.graph->toString(), before);
}

TEST_F(HoistMetadata, ABlockThatReadsAGradientStaysInTheBackward) {
  auto joint = test::parse_joint(
      {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %flag : bool, %dy : Tensor):
  %y : Tensor = aten::relu(%x)
  aten_recompute::backward_start()
  %rank : int = prim::If(%flag)
    block0():
      %a : int = aten::dim(%x)
      -> (%a)
    block1():
      %b : int = aten::dim(%dy)
      -> (%b)
  %dx : Tensor = aten::mul(%dy, %rank)
  return (%y, %dx)
)");
  const auto before = joint.graph->toString();
  hoist_metadata(joint);
  EXPECT_EQ(joint.graph->toString(), before);
}

TEST_F(HoistMetadata, TensorsAreComputedInTheBackwardAsBefore) {
  auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %y : Tensor = aten::relu(%x)
  aten_recompute::backward_start()
  %mask : Tensor = aten::sign(%y)
  %list : Tensor[] = prim::ListConstruct(%y, %mask)
  %dx : Tensor = aten::mul(%dy, %mask)
  return (%y, %dx)
)");
  const auto before = joint.graph->toString();
  hoist_metadata(joint);
  EXPECT_EQ(joint.graph->toString(), before);
}

}  // namespace
}  // namespace aten_recompute
