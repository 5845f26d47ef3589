#include "passes/autodiff/fold_known.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_nodes;
using test::listing;
using test::parse;
using ::testing::ElementsAre;
using ::testing::SizeIs;

class FoldKnown : public test::TorchTest {
 protected:
  static std::vector<std::string> fold(const std::string& ir) {
    auto graph = parse(ir);
    fold_known(graph);
    torch::jit::EliminateDeadCode(graph->block());
    graph->lint();
    return listing(*graph);
  }
};

TEST_F(FoldKnown, NumbersAndListsOfConstantsAreComputed) {
  EXPECT_THAT(fold(R"(
graph(%x : Tensor):
  %two : int = prim::Constant[value=2]()
  %three : int = prim::Constant[value=3]()
  %five : int = aten::add(%two, %three)
  %sizes : int[] = prim::ListConstruct(%five, %two)
  %y : Tensor = aten::view(%x, %sizes)
  return (%y)
)"),
              ElementsAre("y = aten::view(x, [5, 2])"));
}

TEST_F(FoldKnown, TheTakenBlockReplacesAnIfAndIsFoldedItself) {
  EXPECT_THAT(fold(R"(
graph(%x : Tensor):
  %true : bool = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
  %two : int = prim::Constant[value=2]()
  %both : bool = aten::__and__(%true, %true)
  %y : Tensor = prim::If(%both)
    block0():
      %four : int = aten::mul(%two, %two)
      %more : bool = aten::gt(%four, %two)
      %inner : Tensor = prim::If(%more)
        block0():
          %eight : int = aten::mul(%four, %two)
          %a : Tensor = aten::mul(%x, %eight)
          -> (%a)
        block1():
          -> (%x)
      -> (%inner)
    block1():
      %b : Tensor = aten::relu(%x)
      -> (%b)
  return (%y)
)"),
              ElementsAre("a = aten::mul(x, 8)"));
}

TEST_F(FoldKnown, TensorsAndRandomNumbersAreLeft) {
  auto graph = parse(R"(
graph():
  %sizes : int[] = prim::Constant[value=[2]]()
  %none : NoneType = prim::Constant()
  %zeros : Tensor = aten::zeros(%sizes, %none, %none, %none, %none)
  %random : Tensor = aten::rand(%sizes, %none, %none, %none, %none)
  return (%zeros, %random)
)");
  fold_known(graph);
  EXPECT_THAT(find_nodes(*graph, "aten::zeros"), SizeIs(1));
  EXPECT_THAT(find_nodes(*graph, "aten::rand"), SizeIs(1));
}

// A block that is not taken may cast None to something else.
TEST_F(FoldKnown, NoneIsNotCastToANumber) {
  auto graph = parse(R"(
graph(%flag : bool):
  %none : NoneType = prim::Constant()
  %one : int = prim::Constant[value=1]()
  %y : int = prim::If(%flag)
    block0():
      %cast : int = prim::unchecked_cast(%none)
      -> (%cast)
    block1():
      -> (%one)
  return (%y)
)");
  fold_known(graph);
  graph->lint();
  EXPECT_THAT(find_nodes(*graph, "prim::If"), SizeIs(1));
  EXPECT_THAT(find_nodes(*graph, "prim::unchecked_cast"), SizeIs(1));
}

}  // namespace
}  // namespace aten_recompute
