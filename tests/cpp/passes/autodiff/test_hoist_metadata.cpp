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
