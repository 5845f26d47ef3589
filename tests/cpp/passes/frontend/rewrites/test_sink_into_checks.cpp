#include "passes/frontend/rewrites/sink_into_checks.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::SizeIs;

class SinkIntoChecks : public test::TorchTest {};

std::shared_ptr<torch::jit::Graph> sunk(const std::string& ir) {
  auto graph = test::parse(ir);
  sink_into_checks(graph);
  graph->lint();
  return graph;
}

TEST_F(SinkIntoChecks, ATupleMovesIntoTheCheckThatReadsIt) {
  const auto graph = sunk(R"(
graph(%x : Tensor, %n : int, %wrong : bool):
  %message : str = prim::Constant[value="got {}"]()
  %error : str = prim::Constant[value="builtins.RuntimeError"]()
  %sizes : (int, int) = prim::TupleConstruct(%n, %n)
  prim::If(%wrong)
    block0():
      %text : str = aten::format(%message, %sizes)
      prim::RaiseException(%text, %error)
      -> ()
    block1():
      -> ()
  %y : Tensor = aten::relu(%x)
  return (%y)
)");
  EXPECT_THAT(test::listing(*graph), ElementsAre("prim::If(wrong)", "y = aten::relu(x)"));
  const auto tuples = test::find_nodes(*graph, "prim::TupleConstruct");
  ASSERT_THAT(tuples, SizeIs(1));
  EXPECT_EQ(tuples[0]->owningBlock()->owningNode()->kind(), c10::prim::If);
  EXPECT_EQ(test::find_nodes(*graph, "aten::format")[0]->input(1), tuples[0]->output());
}

TEST_F(SinkIntoChecks, ATupleThatIsReadElsewhereStays) {
  const std::string text = R"(
graph(%n : int, %wrong : bool):
  %message : str = prim::Constant[value="got {}"]()
  %error : str = prim::Constant[value="builtins.RuntimeError"]()
  %sizes : (int, int) = prim::TupleConstruct(%n, %n)
  prim::If(%wrong)
    block0():
      %text : str = aten::format(%message, %sizes)
      prim::RaiseException(%text, %error)
      -> ()
    block1():
      -> ()
  return (%sizes)
)";
  EXPECT_THAT(test::listing(*sunk(text)),
              ElementsAre("sizes = prim::TupleConstruct(n, n)", "prim::If(wrong)"));
}

TEST_F(SinkIntoChecks, ABranchThatComputesIsNoCheck) {
  const auto graph = sunk(R"(
graph(%n : int, %choice : bool):
  %message : str = prim::Constant[value="got {}"]()
  %sizes : (int, int) = prim::TupleConstruct(%n, %n)
  %text : str = prim::If(%choice)
    block0():
      %a : str = aten::format(%message, %sizes)
      -> (%a)
    block1():
      -> (%message)
  return (%text)
)");
  EXPECT_THAT(test::listing(*graph),
              ElementsAre("sizes = prim::TupleConstruct(n, n)", "text = prim::If(choice)"));
}

}  // namespace
}  // namespace aten_recompute
