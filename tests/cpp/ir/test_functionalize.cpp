#include "ir/functionalize.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::listing;
using test::parse;
using ::testing::ElementsAre;

class Functionalize : public test::TorchTest {};

// Expects that functionalize() does not change the graph.
void expect_left(const std::string& ir) {
  const auto graph = parse(ir);
  const auto before = graph->toString();
  functionalize(graph);
  EXPECT_EQ(graph->toString(), before);
}

TEST_F(Functionalize, AWriteToAnOwnValueBecomesANewValue) {
  const auto graph = parse(R"(
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %before : Tensor = aten::tanh(%h)
  %y : Tensor = aten::relu_(%h)
  %after : Tensor = aten::sigmoid(%h)
  return (%before, %y, %after)
)");
  functionalize(graph);
  graph->lint();
  EXPECT_THAT(listing(*graph), ElementsAre("h = aten::mm(x, w)", "before = aten::tanh(h)",
                                           "y = aten::relu(h)", "after = aten::sigmoid(y)"));
}

TEST_F(Functionalize, ReadsInsideOfLaterControlFlowSeeTheNewValue) {
  const auto graph = parse(R"(
graph(%x : Tensor, %w : Tensor, %flag : bool):
  %h : Tensor = aten::mm(%x, %w)
  %y : Tensor = aten::relu_(%h)
  %z : Tensor = prim::If(%flag)
    block0():
      %a : Tensor = aten::tanh(%h)
      -> (%a)
    block1():
      %b : Tensor = aten::sigmoid(%h)
      -> (%b)
  return (%z)
)");
  functionalize(graph);
  graph->lint();
  EXPECT_THAT(test::find_nodes(*graph, "aten::relu_"), ::testing::IsEmpty());
  const auto x = at::randn({2, 2});
  const auto w = at::randn({2, 2});
  for (const bool flag : {false, true}) {
    const auto relu = at::relu(at::mm(x, w));
    const auto result = test::run_graph(graph, {x, w, flag})[0].toTensor();
    EXPECT_TRUE(test::bitwise_equal(result, flag ? at::tanh(relu) : at::sigmoid(relu)));
  }
}

TEST_F(Functionalize, AChainOfWritesBecomesAChainOfValues) {
  const auto graph = parse(R"(
graph(%x : Tensor, %w : Tensor):
  %one : int = prim::Constant[value=1]()
  %h : Tensor = aten::mm(%x, %w)
  %a : Tensor = aten::add_(%h, %x, %one)
  %b : Tensor = aten::relu_(%a)
  %c : Tensor = aten::tanh(%h)
  return (%c)
)");
  functionalize(graph);
  graph->lint();
  // Both writes go to the memory of h, so tanh(h) reads the result of the second.
  EXPECT_THAT(listing(*graph),
              ElementsAre("h = aten::mm(x, w)", "$0 = prim::dtype(h)", "$1 = aten::add(h, x, 1)",
                          "a = aten::to($1, $0, False, False, None)", "b = aten::relu(a)",
                          "c = aten::tanh(b)"));
}

TEST_F(Functionalize, TheDtypeOfTheTargetIsKept) {
  const std::string ir = R"(
graph(%x : Tensor, %z : Tensor):
  %one : int = prim::Constant[value=1]()
  %h : Tensor = aten::neg(%x)
  %a : Tensor = aten::add_(%h, %z, %one)
  return (%h)
)";
  const auto graph = parse(ir);
  functionalize(graph);
  ASSERT_THAT(test::find_nodes(*graph, "aten::add_"), ::testing::IsEmpty());
  const auto x = at::randn({5}).to(at::kHalf);
  const auto z = at::randn({5});
  const auto expected = test::run_graph(parse(ir), {x, z})[0].toTensor();
  EXPECT_EQ(expected.scalar_type(), at::kHalf);
  EXPECT_TRUE(test::bitwise_equal(test::run_graph(graph, {x, z})[0].toTensor(), expected));
}

TEST_F(Functionalize, WritesToInputsAreLeft) {
  expect_left(R"(
graph(%x : Tensor):
  %y : Tensor = aten::relu_(%x)
  return (%y)
)");
}

TEST_F(Functionalize, WritesToViewsOfInputsAreLeft) {
  expect_left(R"(
graph(%x : Tensor):
  %v : Tensor = aten::t(%x)
  %y : Tensor = aten::relu_(%v)
  return (%y)
)");
}

TEST_F(Functionalize, WritesToViewsOfOwnValuesAreLeft) {
  expect_left(R"(
graph(%x : Tensor):
  %h : Tensor = aten::neg(%x)
  %v : Tensor = aten::t(%h)
  %y : Tensor = aten::relu_(%v)
  return (%h)
)");
}

TEST_F(Functionalize, ValuesWithAViewAreLeft) {
  expect_left(R"(
graph(%x : Tensor):
  %h : Tensor = aten::neg(%x)
  %v : Tensor = aten::t(%h)
  %y : Tensor = aten::relu_(%h)
  %z : Tensor = aten::tanh(%v)
  return (%z)
)");
}

TEST_F(Functionalize, ValuesInAListAreLeft) {
  expect_left(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h : Tensor = aten::neg(%x)
  %list : Tensor[] = prim::ListConstruct(%h, %x)
  %y : Tensor = aten::relu_(%h)
  %z : Tensor = aten::cat(%list, %zero)
  return (%z)
)");
}

TEST_F(Functionalize, ListsAndViewsAreMadeOfTheNewValue) {
  const auto graph = parse(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h : Tensor = aten::neg(%x)
  %y : Tensor = aten::relu_(%h)
  %list : Tensor[] = prim::ListConstruct(%h, %x)
  %z : Tensor = aten::cat(%list, %zero)
  %v : Tensor = aten::t(%y)
  return (%z, %v)
)");
  functionalize(graph);
  graph->lint();
  EXPECT_THAT(listing(*graph), ElementsAre("h = aten::neg(x)", "y = aten::relu(h)",
                                           "list = prim::ListConstruct(y, x)",
                                           "z = aten::cat(list, 0)", "v = aten::t(y)"));
}

TEST_F(Functionalize, ValuesWithAViewBetweenTwoWritesAreLeft) {
  expect_left(R"(
graph(%x : Tensor):
  %h : Tensor = aten::neg(%x)
  %y : Tensor = aten::relu_(%h)
  %v : Tensor = aten::t(%y)
  %w : Tensor = aten::sigmoid_(%h)
  return (%v)
)");
}

TEST_F(Functionalize, ALaterWriteToAViewWritesToTheNewValue) {
  const std::string ir = R"(
graph(%x : Tensor):
  %h : Tensor = aten::neg(%x)
  %y : Tensor = aten::relu_(%h)
  %v : Tensor = aten::t(%h)
  %w : Tensor = aten::exp_(%v)
  %z : Tensor = aten::tanh(%h)
  return (%z)
)";
  const auto graph = parse(ir);
  functionalize(graph);
  graph->lint();
  EXPECT_THAT(listing(*graph),
              ElementsAre("h = aten::neg(x)", "y = aten::relu(h)", "v = aten::t(y)",
                          "w = aten::exp_(v)", "z = aten::tanh(y)"));
  const auto x = at::randn({2, 3});
  EXPECT_TRUE(test::bitwise_equal(test::run_graph(graph, {x})[0].toTensor(),
                                  test::run_graph(parse(ir), {x})[0].toTensor()));
}

TEST_F(Functionalize, WritesInsideOfControlFlowAreLeft) {
  expect_left(R"(
graph(%x : Tensor, %flag : bool):
  %h : Tensor = aten::neg(%x)
  prim::If(%flag)
    block0():
      %y : Tensor = aten::relu_(%h)
      -> ()
    block1():
      -> ()
  return (%h)
)");
}

TEST_F(Functionalize, ValuesAreDecidedIndependently) {
  const auto graph = parse(R"(
graph(%x : Tensor):
  %h : Tensor = aten::neg(%x)
  %own : Tensor = aten::relu_(%h)
  %given : Tensor = aten::relu_(%x)
  return (%h)
)");
  functionalize(graph);
  graph->lint();
  EXPECT_THAT(listing(*graph),
              ElementsAre("h = aten::neg(x)", "own = aten::relu(h)", "given = aten::relu_(x)"));
}

TEST_F(Functionalize, AFunctionalGraphStaysAsItIs) {
  expect_left(R"(
graph(%x : Tensor):
  %h : Tensor = aten::neg(%x)
  %y : Tensor = aten::relu(%h)
  return (%y)
)");
}

}  // namespace
}  // namespace aten_recompute
