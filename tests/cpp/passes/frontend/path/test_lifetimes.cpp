#include "passes/frontend/path/lifetimes.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

std::vector<std::string> dead_after(torch::jit::Graph& graph, const std::string& kind) {
  Lifetimes lifetimes;
  lifetimes.add(graph.block());
  std::vector<std::string> names;
  for (const auto* value : lifetimes.dead_after(test::find_nodes(graph, kind).at(0)))
    names.push_back(value->debugName());
  return names;
}

TEST(LifetimesTest, AValueEndsWithItsLastReaderAndOutputsDoNot) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %a : Tensor = aten::relu(%x)
  %b : Tensor = aten::tanh(%a)
  %unread : Tensor = aten::sigmoid(%b)
  %c : Tensor = aten::mul(%a, %b)
  return (%b, %c)
)");
  EXPECT_THAT(dead_after(*graph, "aten::relu"), ElementsAre("x"));
  EXPECT_THAT(dead_after(*graph, "aten::tanh"), IsEmpty());
  EXPECT_THAT(dead_after(*graph, "aten::sigmoid"), ElementsAre("unread"));
  EXPECT_THAT(dead_after(*graph, "aten::mul"), ElementsAre("a"));
}

// The block may run again, so what it reads from outside lives until the node ends.
TEST(LifetimesTest, WhatABlockReadsFromOutsideLivesAsLongAsTheNode) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %yes : bool):
  %a : Tensor = aten::relu(%x)
  %y : Tensor = prim::If(%yes)
    block0():
      %b : Tensor = aten::tanh(%a)
      %c : Tensor = aten::exp(%b)
      -> (%c)
    block1():
      -> (%x)
  return (%y)
)");
  EXPECT_THAT(dead_after(*graph, "aten::relu"), IsEmpty());
  EXPECT_THAT(dead_after(*graph, "aten::exp"), ElementsAre("b"));
  EXPECT_THAT(dead_after(*graph, "prim::If"), UnorderedElementsAre("a", "x", "yes"));
}

}  // namespace
}  // namespace aten_recompute
