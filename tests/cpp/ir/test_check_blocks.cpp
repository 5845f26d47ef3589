#include "ir/check_blocks.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

// Returns the answer for a block with these nodes; they may read %x : Tensor, %n : int,
// %yes : bool, %message : str and %none.
bool only_checks(const std::string& nodes) {
  const auto graph = test::parse(R"(
graph(%self, %x : Tensor, %n : int, %yes : bool, %message : str):
  %none : NoneType = prim::Constant()
  prim::If(%yes)
    block0():
)" + nodes + R"(
      -> ()
    block1():
      -> ()
  return (%x)
)");
  return only_raises_or_warns(test::find_nodes(*graph, "prim::If").at(0)->blocks()[0]);
}

TEST(CheckBlocks, RaisingAndWarningAreTheOnlyEffects) {
  EXPECT_TRUE(only_checks("      prim::RaiseException(%message, %none)"));
  EXPECT_TRUE(only_checks("      aten::warn(%message, %n)"));
  EXPECT_FALSE(only_checks("      prim::Print(%message)"));
  EXPECT_FALSE(only_checks("      %y : Tensor = aten::add_(%x, %n, %n)"));
}

TEST(CheckBlocks, NumbersMayBeComputedAndTensorsMayNot) {
  EXPECT_TRUE(only_checks("      %size : int = aten::size(%x, %n)"));
  EXPECT_FALSE(only_checks("      %y : Tensor = aten::relu(%x)"));
}

TEST(CheckBlocks, AttributesAndTheStateOfAutogradAreNotRead) {
  EXPECT_FALSE(only_checks("      %bound : int = prim::GetAttr[name=\"bound\"](%self)"));
  EXPECT_FALSE(only_checks("      %needs : bool = prim::requires_grad(%x)"));
}

TEST(CheckBlocks, NestedBlocksCount) {
  const auto nested = [](const std::string& node) {
    return only_checks(R"(
      prim::If(%yes)
        block0():
    )" + node + R"(
          -> ()
        block1():
          -> ()
)");
  };
  EXPECT_TRUE(nested("      prim::RaiseException(%message, %none)"));
  EXPECT_FALSE(nested("      %y : Tensor = aten::relu(%x)"));
}

}  // namespace
}  // namespace aten_recompute
