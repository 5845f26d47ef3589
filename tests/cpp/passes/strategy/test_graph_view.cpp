#include "passes/strategy/graph_view.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

class GraphViewTest : public test::TorchTest {};

std::vector<std::string> separators(const JointGraph& joint,
                                    const std::vector<bool>& is_attribute) {
  return test::names(single_value_separators(view_forward(joint, is_attribute)));
}

// Returns edges as pairs of names; a node has the name of its first output.
std::vector<std::pair<std::string, std::string>> edges(const GraphView& view) {
  auto name = [&](GraphView::Vertex v) -> std::string {
    if (v == view.source) {
      return "source";
    }
    return v == view.sink ? "sink" : view.node(v)->output(0)->debugName();
  };
  std::vector<std::pair<std::string, std::string>> result;
  for (auto [edge, end] = boost::edges(view.graph); edge != end; ++edge) {
    result.emplace_back(name(boost::source(*edge, view.graph)),
                        name(boost::target(*edge, view.graph)));
  }
  return result;
}

constexpr const char* kChain = R"(
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %a : Tensor = aten::relu(%h)
  %y : Tensor = aten::sigmoid(%a)
  return (%y)
)";

TEST_F(GraphViewTest, EveryValueOfAChainIsASeparator) {
  const auto joint = test::parse_forward(kChain);
  EXPECT_THAT(separators(joint, {false, true}), ElementsAre("h", "a", "y"));
  EXPECT_THAT(
      edges(view_forward(joint, {false, true})),
      UnorderedElementsAre(Pair("source", "h"), Pair("h", "a"), Pair("a", "y"), Pair("y", "sink")));
}

// x -> h -> (a -> b) + h -> s -> (c) + s -> y: no value inside a residual branch is a separator.
TEST_F(GraphViewTest, SumsOfResidualBranchesAreSeparators) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %one : int = prim::Constant[value=1]()
  %h : Tensor = aten::neg(%x)
  %a : Tensor = aten::relu(%h)
  %b : Tensor = aten::tanh(%a)
  %s : Tensor = aten::add(%h, %b, %one)
  %c : Tensor = aten::relu(%s)
  %y : Tensor = aten::add(%s, %c, %one)
  return (%y)
)");
  EXPECT_THAT(separators(joint, {false}), ElementsAre("h", "s", "y"));
}

// An encoder x -> a -> b, and a decoder y -> c -> d that reads b twice. Only the end is common to
// both.
TEST_F(GraphViewTest, AnEncoderAndADecoderHaveSeparatorsOfTheirOwn) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor, %y : Tensor):
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::tanh(%x)
  %b : Tensor = aten::relu(%a)
  %c : Tensor = aten::sigmoid(%y)
  %s : Tensor = aten::add(%c, %b, %one)
  %d : Tensor = aten::tanh(%s)
  %t : Tensor = aten::mul(%d, %b)
  %z : Tensor = aten::relu(%t)
  return (%z)
)");
  const auto view = view_forward(joint, {false, false});
  EXPECT_THAT(test::names(single_value_separators(view)), ElementsAre("t", "z"));
  EXPECT_THAT(test::names(separators_by_source(view)),
              ElementsAre("a", "b", "c", "s", "d", "t", "z"));
}

TEST_F(GraphViewTest, OneSourceChangesNoSeparators) {
  const auto joint = test::parse_forward(kChain);
  const auto view = view_forward(joint, {false, true});
  EXPECT_EQ(separators_by_source(view), single_value_separators(view));
}

TEST_F(GraphViewTest, ALongSkipConnectionLeavesNoSeparators) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::relu(%x)
  %b : Tensor = aten::tanh(%a)
  %c : Tensor = aten::sigmoid(%b)
  %y : Tensor = aten::add(%x, %c, %one)
  return (%y)
)");
  EXPECT_THAT(separators(joint, {false}), ElementsAre("y"));
}

TEST_F(GraphViewTest, PathsToBothOfTwoOutputsCount) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %h : Tensor = aten::neg(%x)
  %a : Tensor = aten::relu(%h)
  %b : Tensor = aten::tanh(%h)
  return (%a, %b)
)");
  EXPECT_THAT(separators(joint, {false}), ElementsAre("h"));
}

TEST_F(GraphViewTest, AnOutputWithoutAGradientDoesNotCount) {
  auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %h : Tensor = aten::neg(%x)
  %a : Tensor = aten::relu(%h)
  %b : Tensor = aten::detach(%h)
  return (%a, %b)
)");
  joint.output_requires_grad = {true, false};
  joint.requires_grad.erase(test::find_value(*joint.graph, "b")->unique());
  EXPECT_THAT(separators(joint, {false}), ElementsAre("h", "a"));
}

// Norms also return statistics, which only the backward reads.
TEST_F(GraphViewTest, AnOutputOfANodeIsASeparatorIfTheOthersEnd) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %a : Tensor, %b : Tensor = aten_recompute_test::pair(%x)
  %y : Tensor = aten::relu(%a)
  return (%y)
)");
  EXPECT_THAT(separators(joint, {false}), ElementsAre("a", "y"));
}

TEST_F(GraphViewTest, ANodeWithTwoOutputsInUseIsNoSeparator) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %h : Tensor = aten::neg(%x)
  %a : Tensor, %b : Tensor = aten_recompute_test::pair(%h)
  %y : Tensor = aten::mul(%a, %b)
  return (%y)
)");
  EXPECT_THAT(separators(joint, {false}), ElementsAre("h", "y"));
}

// wt depends on a parameter only. Edges to both products would be a path around h.
TEST_F(GraphViewTest, NodesOfParametersAloneAreNoVertices) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor, %w : Tensor):
  %wt : Tensor = aten::t(%w)
  %h : Tensor = aten::mm(%x, %wt)
  %y : Tensor = aten::mm(%h, %wt)
  return (%y)
)");
  EXPECT_THAT(separators(joint, {false, true}), ElementsAre("h", "y"));
  const auto view = view_forward(joint, {false, true});
  ASSERT_EQ(view.nodes.size(), 2U);
  EXPECT_EQ(view.nodes[0]->output()->debugName(), "h");
  EXPECT_EQ(view.nodes[1]->output()->debugName(), "y");
  // If w is an ordinary input, wt is a path around h.
  EXPECT_THAT(separators(joint, {false, false}), ElementsAre("y"));
}

// Every layer reads a padding mask, but it is no path around a layer, because no gradient passes
// through it.
TEST_F(GraphViewTest, NodesWithoutAGradientAreNoVertices) {
  auto joint = test::parse_forward(R"(
graph(%x : Tensor, %lengths : Tensor):
  %mask : Tensor = aten::neg(%lengths)
  %h : Tensor = aten::mul(%x, %mask)
  %y : Tensor = aten::mul(%h, %mask)
  return (%y)
)");
  for (const char* name : {"lengths", "mask"}) {
    joint.requires_grad.erase(test::find_value(*joint.graph, name)->unique());
  }
  EXPECT_THAT(separators(joint, {false, false}), ElementsAre("h", "y"));
}

// A batch needs no gradient, but values that are computed from it and parameters do.
TEST_F(GraphViewTest, TheFirstNodesWithAGradientFollowTheSource) {
  auto joint = test::parse_forward(kChain);
  joint.requires_grad.erase(test::find_value(*joint.graph, "x")->unique());
  EXPECT_THAT(separators(joint, {false, true}), ElementsAre("h", "a", "y"));
}

TEST_F(GraphViewTest, SizesAreNoEdges) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %size : int[] = aten::size(%x)
  %h : Tensor = aten::neg(%x)
  %a : Tensor = aten::relu(%h)
  %y : Tensor = aten::reshape(%a, %size)
  return (%y)
)");
  EXPECT_THAT(separators(joint, {false}), ElementsAre("h", "a", "y"));
}

TEST_F(GraphViewTest, AForwardFromParametersAloneHasNoSeparators) {
  const auto joint = test::parse_forward(R"(
graph(%w : Tensor):
  %h : Tensor = aten::neg(%w)
  %y : Tensor = aten::relu(%h)
  return (%y)
)");
  EXPECT_THAT(separators(joint, {true}), IsEmpty());
}

}  // namespace
}  // namespace aten_recompute
