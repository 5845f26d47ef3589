#include "passes/frontend/rewrites/functionalize_lists.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::listing;
using test::parse;
using ::testing::ElementsAre;

class FunctionalizeLists : public test::TorchTest {};

std::vector<std::string> listing_after(const std::string& ir) {
  const auto graph = parse(ir);
  functionalize_lists(graph);
  graph->lint();
  torch::jit::EliminateDeadCode(graph);
  return listing(*graph);
}

void expect_left(const std::string& ir) {
  const auto graph = parse(ir);
  const auto before = graph->toString();
  functionalize_lists(graph);
  EXPECT_EQ(graph->toString(), before);
}

TEST_F(FunctionalizeLists, ReadsBeforeAnAppendSeeTheShorterList) {
  EXPECT_THAT(listing_after(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %xs : Tensor[] = prim::ListConstruct(%x)
  %a : Tensor = aten::cat(%xs, %zero)
  %0 : Tensor[] = aten::append(%xs, %a)
  %b : Tensor = aten::cat(%xs, %zero)
  %1 : Tensor[] = aten::append(%xs, %b)
  %c : Tensor = aten::cat(%xs, %zero)
  return (%c)
)"),
              ElementsAre("xs = prim::ListConstruct(x)", "a = aten::cat(xs, 0)",
                          "$0 = prim::ListConstruct(x, a)", "b = aten::cat($0, 0)",
                          "$1 = prim::ListConstruct(x, a, b)", "c = aten::cat($1, 0)"));
}

TEST_F(FunctionalizeLists, EveryKindOfChangeBecomesANewList) {
  const std::string ir = R"(
graph(%a : Tensor, %b : Tensor, %c : Tensor):
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %last : int = prim::Constant[value=-1]()
  %far : int = prim::Constant[value=9]()
  %xs : Tensor[] = prim::ListConstruct(%a)
  %more : Tensor[] = prim::ListConstruct(%b, %c)
  aten::extend(%xs, %more)
  aten::insert(%xs, %last, %a)
  aten::insert(%xs, %far, %b)
  %x0 : Tensor = aten::stack(%xs, %zero)
  %taken : Tensor = aten::pop(%xs, %one)
  aten::reverse(%xs)
  %x1 : Tensor = aten::stack(%xs, %zero)
  %set : Tensor[] = aten::_set_item(%xs, %last, %b)
  aten::Delete(%xs, %zero)
  %x2 : Tensor = aten::stack(%xs, %zero)
  aten::clear(%xs)
  %added : Tensor[] = aten::add_(%xs, %more)
  %x3 : Tensor = aten::stack(%xs, %zero)
  return (%x0, %taken, %x1, %x2, %x3)
)";
  const auto graph = parse(ir);
  functionalize_lists(graph);
  graph->lint();
  for (const auto* node : graph->nodes()) {
    EXPECT_FALSE(node->maybeSchema() != nullptr && node->schema().is_mutable()) << *node;
  }
  const std::vector<c10::IValue> inputs{at::randn({2}), at::randn({2}), at::randn({2})};
  const auto expected = test::run_graph(parse(ir), inputs);
  const auto results = test::run_graph(graph, inputs);
  ASSERT_EQ(results.size(), expected.size());
  for (size_t i = 0; i < results.size(); ++i)
    EXPECT_TRUE(test::bitwise_equal(results[i].toTensor(), expected[i].toTensor())) << i;
}

TEST_F(FunctionalizeLists, TheResultOfAChangeIsTheNewList) {
  EXPECT_THAT(listing_after(R"(
graph(%x : Tensor, %y : Tensor):
  %zero : int = prim::Constant[value=0]()
  %xs : Tensor[] = prim::ListConstruct(%x)
  %same : Tensor[] = aten::append(%xs, %y)
  %a : Tensor = aten::cat(%same, %zero)
  return (%a, %same)
)"),
              ElementsAre("$0 = prim::ListConstruct(x, y)", "a = aten::cat($0, 0)"));
}

TEST_F(FunctionalizeLists, LaterUsesInNestedBlocksReadTheNewList) {
  const std::string ir = R"(
graph(%x : Tensor, %y : Tensor, %flag : bool):
  %zero : int = prim::Constant[value=0]()
  %xs : Tensor[] = prim::ListConstruct(%x)
  %0 : Tensor[] = aten::append(%xs, %y)
  prim::If(%flag)
    block0():
      %1 : Tensor[] = aten::append(%xs, %x)
      -> ()
    block1():
      -> ()
  %a : Tensor = aten::cat(%xs, %zero)
  return (%a)
)";
  const auto graph = parse(ir);
  functionalize_lists(graph);
  graph->lint();
  // The change in the block may not happen, so it stays; the one before it is replaced.
  EXPECT_EQ(test::find_nodes(*graph, "aten::append").size(), 1U);
  const auto x = at::randn({2});
  const auto y = at::randn({2});
  for (const bool flag : {false, true}) {
    EXPECT_TRUE(test::bitwise_equal(test::run_graph(graph, {x, y, flag})[0].toTensor(),
                                    test::run_graph(parse(ir), {x, y, flag})[0].toTensor()));
  }
}

TEST_F(FunctionalizeLists, GivenListsAreLeft) {
  expect_left(R"(
graph(%xs : Tensor[], %x : Tensor):
  %0 : Tensor[] = aten::append(%xs, %x)
  return ()
)");
}

TEST_F(FunctionalizeLists, ListsWithASecondNameAreLeft) {
  expect_left(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %xs : Tensor[] = prim::ListConstruct(%x)
  %pair : (Tensor[], int) = prim::TupleConstruct(%xs, %zero)
  %0 : Tensor[] = aten::append(%xs, %x)
  return (%pair)
)");
}

TEST_F(FunctionalizeLists, ListsInAListAreLeft) {
  expect_left(R"(
graph(%x : Tensor):
  %xs : Tensor[] = prim::ListConstruct(%x)
  %outer : Tensor[][] = prim::ListConstruct(%xs)
  %0 : Tensor[] = aten::append(%xs, %x)
  return (%outer)
)");
}

TEST_F(FunctionalizeLists, ChangesInLoopsAreLeft) {
  expect_left(R"(
graph(%x : Tensor, %n : int):
  %true : bool = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %xs : Tensor[] = prim::ListConstruct(%x)
  prim::Loop(%n, %true)
    block0(%i : int):
      %0 : Tensor[] = aten::append(%xs, %x)
      -> (%true)
  %a : Tensor = aten::cat(%xs, %zero)
  return (%a)
)");
}

TEST_F(FunctionalizeLists, ChangesAfterAChangeInALoopAreLeft) {
  expect_left(R"(
graph(%x : Tensor, %n : int):
  %true : bool = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %xs : Tensor[] = prim::ListConstruct(%x)
  prim::Loop(%n, %true)
    block0(%i : int):
      %0 : Tensor[] = aten::append(%xs, %x)
      -> (%true)
  %1 : Tensor[] = aten::append(%xs, %x)
  %a : Tensor = aten::cat(%xs, %zero)
  return (%a)
)");
}

TEST_F(FunctionalizeLists, ExtendingByAGivenListOrByItselfIsLeft) {
  expect_left(R"(
graph(%x : Tensor, %given : Tensor[]):
  %xs : Tensor[] = prim::ListConstruct(%x)
  aten::extend(%xs, %given)
  aten::extend(%xs, %xs)
  return (%xs)
)");
}

TEST_F(FunctionalizeLists, PositionsThatAreUnknownOrRaiseAreLeft) {
  expect_left(R"(
graph(%x : Tensor, %i : int):
  %two : int = prim::Constant[value=2]()
  %xs : Tensor[] = prim::ListConstruct(%x)
  aten::Delete(%xs, %two)
  aten::insert(%xs, %i, %x)
  return (%xs)
)");
}

}  // namespace
}  // namespace aten_recompute
