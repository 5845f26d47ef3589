#include "passes/frontend/regions/form_regions.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/testing/file_check.h>

#include "ir/symbols.h"
#include "passes/frontend/prepare.h"
#include "passes/frontend/rewrites/inline_modules.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_nodes;
using test::listing;
using test::parse;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::testing::FileCheck;

class FormRegions : public test::TorchTest {};

struct Formed {
  std::shared_ptr<Graph> graph;
  Regions regions;
  std::vector<std::string> inside(size_t region) const {
    return listing(*regions.nodes.at(region)->g(c10::attr::Subgraph));
  }
};

Formed form(std::shared_ptr<Graph> graph) {
  Formed formed{std::move(graph), {}};
  formed.regions = form_regions(formed.graph);
  formed.graph->lint();
  for (auto* node : formed.regions.nodes) {
    node->g(c10::attr::Subgraph)->lint();
  }
  return formed;
}

Formed form(const std::string& ir) {
  return form(parse(ir));
}

Formed form(const Module& module, const std::vector<c10::IValue>& inputs) {
  auto graph = test::method_graph(module);
  inline_modules(graph);
  auto assumptions = fold_call(graph, module._ivalue(), inputs);
  prepare(graph, module._ivalue(), assumptions);
  return form(std::move(graph));
}

TEST_F(FormRegions, AStraightGraphIsOneRegion) {
  const auto formed = form(R"(
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %y : Tensor = aten::relu(%h)
  return (%y)
)");
  EXPECT_THAT(listing(*formed.graph), ElementsAre("y = aten_recompute::DifferentiableGraph(x, w)"));
  ASSERT_THAT(formed.regions.nodes, SizeIs(1));
  EXPECT_THAT(formed.regions.breaks, IsEmpty());
  EXPECT_THAT(formed.inside(0), ElementsAre("h = aten::mm(x, w)", "y = aten::relu(h)"));
  EXPECT_THAT(formed.regions.nodes[0]->is(symbols::kIsAttribute), ElementsAre(0, 0));
}

TEST_F(FormRegions, AGraphWithoutOperatorsHasNoRegion) {
  const auto formed = form(R"(
graph(%x : Tensor, %y : Tensor):
  %t : (Tensor, Tensor) = prim::TupleConstruct(%x, %y)
  return (%t)
)");
  EXPECT_THAT(formed.regions.nodes, IsEmpty());
  EXPECT_THAT(listing(*formed.graph), ElementsAre("t = prim::TupleConstruct(x, y)"));
}

TEST_F(FormRegions, AttributesAreReadOutsideAndMarked) {
  const auto formed = form(test::make_linear(2, 3), {at::randn({4, 2})});
  ASSERT_THAT(formed.regions.nodes, SizeIs(1));
  EXPECT_THAT(find_nodes(*formed.graph, "prim::GetAttr"), SizeIs(2));
  // linear(x, weight, bias)
  EXPECT_THAT(formed.regions.nodes[0]->is(symbols::kIsAttribute), ElementsAre(0, 1, 1));
}

TEST_F(FormRegions, AReturnedViewIsMadeOutside) {
  const auto formed = form(R"(
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %v : Tensor = aten::t(%h)
  %y : Tensor = aten::relu(%v)
  return (%v, %y)
)");
  // The region returns h, of which v is made outside; relu reads a second view inside.
  EXPECT_THAT(listing(*formed.graph),
              ElementsAre("h, y = aten_recompute::DifferentiableGraph(x, w)", "v = aten::t(h)"));
  EXPECT_THAT(formed.inside(0),
              ElementsAre(HasSubstr("aten::mm("), HasSubstr("aten::t("), HasSubstr("aten::relu(")));
}

TEST_F(FormRegions, AReturnedViewOfAViewIsMadeOutsideFromItsBase) {
  const auto formed = form(R"(
graph(%x : Tensor, %w : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h : Tensor = aten::mm(%x, %w)
  %v : Tensor = aten::t(%h)
  %u : Tensor = aten::unsqueeze(%v, %zero)
  return (%u)
)");
  EXPECT_THAT(listing(*formed.graph), ElementsAre("h = aten_recompute::DifferentiableGraph(x, w)",
                                                  "v = aten::t(h)", "u = aten::unsqueeze(v, 0)"));
  EXPECT_THAT(formed.inside(0), ElementsAre(HasSubstr("aten::mm(")));
}

// Between the two regions there is a write to y, which v has nothing to do with.
TEST_F(FormRegions, AViewThatOperatorsOnBothSidesReadLeavesItsRegion) {
  const auto formed = form(R"(
graph(%x : Tensor, %w : Tensor, %y : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %v : Tensor = aten::t(%h)
  %a : Tensor = aten::relu(%v)
  %r : Tensor = aten::relu_(%y)
  %u : Tensor = aten::t(%v)
  %b : Tensor = aten::tanh(%u)
  return (%a, %b)
)");
  EXPECT_THAT(listing(*formed.graph),
              ElementsAre("v, a = aten_recompute::DifferentiableGraph(x, w)", "r = aten::relu_(y)",
                          "b = aten_recompute::DifferentiableGraph(v)"));
}

// Operators inside do not read v, v is returned, or something writes to it.
TEST_F(FormRegions, OtherViewsThatAreReadBehindTheRegionAreMadeThere) {
  const auto first_lines = [](const std::string& lines, const std::string& results) {
    const auto formed = form("graph(%x : Tensor, %w : Tensor, %y : Tensor):\n" + lines +
                             "  return (" + results + ")\n");
    return listing(*formed.graph).at(1);
  };
  const std::string view = "  %h : Tensor = aten::mm(%x, %w)\n  %v : Tensor = aten::t(%h)\n";
  const std::string read = "  %a : Tensor = aten::relu(%v)\n";
  const std::string rest = "  %r : Tensor = aten::relu_(%y)\n  %b : Tensor = aten::tanh(%v)\n";
  EXPECT_EQ(first_lines(view + rest, "%b"), "v = aten::t(h)");
  EXPECT_EQ(first_lines(view + read + rest, "%b, %v"), "v = aten::t(h)");
  EXPECT_EQ(first_lines(view + read + rest + "  %u : Tensor = aten::t(%v)\n", "%u"),
            "v = aten::t(h)");
  EXPECT_EQ(first_lines(view + read + rest + "  %i : Tensor = aten::neg_(%v)\n", "%b"),
            "v = aten::t(h)");
}

// The gradients of both readers are added before they pass through the view.
TEST_F(FormRegions, AViewOfAnInputThatIsReadInsideAndSeenOutsideIsMadeBefore) {
  const auto formed = form(R"(
graph(%x : Tensor, %y : Tensor):
  %zero : int = prim::Constant[value=0]()
  %s : Tensor = aten::sin(%y)
  %n : int = aten::size(%x, %zero)
  %sizes : int[] = prim::ListConstruct(%n, %n)
  %implicit : bool = prim::Constant[value=0]()
  %v : Tensor = aten::expand(%x, %sizes, %implicit)
  %a : Tensor = aten::mul(%v, %s)
  return (%a, %v)
)");
  EXPECT_THAT(listing(*formed.graph),
              ElementsAre(HasSubstr("aten::size(x"), HasSubstr("prim::ListConstruct("),
                          HasSubstr("aten::expand(x"),
                          HasSubstr("a = aten_recompute::DifferentiableGraph(")));
}

TEST_F(FormRegions, ATupleIsMadeAfterTheRegion) {
  const auto formed = form(R"(
graph(%x : Tensor):
  %a : Tensor = aten::relu(%x)
  %b : Tensor = aten::tanh(%a)
  %t : (Tensor, Tensor) = prim::TupleConstruct(%a, %b)
  return (%t)
)");
  EXPECT_THAT(listing(*formed.graph), ElementsAre("a, b = aten_recompute::DifferentiableGraph(x)",
                                                  "t = prim::TupleConstruct(a, b)"));
  EXPECT_THAT(formed.regions.breaks, IsEmpty());
}

TEST_F(FormRegions, AWriteToAnInputSplitsInTwoAndSaysWhy) {
  const auto formed = form(R"(
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %r : Tensor = aten::relu_(%x)
  %y : Tensor = aten::tanh(%h)
  return (%y)
)");
  EXPECT_THAT(listing(*formed.graph),
              ElementsAre("h = aten_recompute::DifferentiableGraph(x, w)", "r = aten::relu_(x)",
                          "y = aten_recompute::DifferentiableGraph(h)"));
  ASSERT_THAT(formed.regions.breaks, SizeIs(1));
  EXPECT_EQ(formed.regions.breaks[0].node, "aten::relu_");
  EXPECT_EQ(formed.regions.breaks[0].reason,
            "writes in place to a value that the method did not make");
  EXPECT_EQ(formed.regions.breaks[0].location, "");
}

TEST_F(FormRegions, APrintIsABreak) {
  auto module = test::make_module("M");
  module.define(R"(
def forward(self, x):
    y = torch.tanh(x * 2)
    print(1)
    return torch.relu(y)
)");
  const auto formed = form(module, {at::randn({2})});
  ASSERT_THAT(formed.regions.nodes, SizeIs(2));
  ASSERT_THAT(formed.regions.breaks, SizeIs(1));
  EXPECT_EQ(formed.regions.breaks[0].node, "prim::Print");
  EXPECT_EQ(formed.regions.breaks[0].reason, "has side effects");
}

TEST_F(FormRegions, AWriteAfterTheLastRegionIsNoBreak) {
  const auto formed = form(R"(
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %r : Tensor = aten::relu_(%x)
  return (%h)
)");
  EXPECT_THAT(formed.regions.nodes, SizeIs(1));
  EXPECT_THAT(formed.regions.breaks, IsEmpty());
}

TEST_F(FormRegions, SizeChecksStayInside) {
  auto module = test::make_module("M");
  module.define(R"(
def forward(self, x):
    y = torch.relu(x)
    assert y.size(0) != 1, "one row"
    return torch.tanh(y)
)");
  const auto formed = form(module, {at::randn({2, 2})});
  ASSERT_THAT(formed.regions.nodes, SizeIs(1));
  EXPECT_THAT(formed.regions.breaks, IsEmpty());
  FileCheck()
      .check("aten::relu")
      ->check("prim::If")
      ->check("prim::RaiseException")
      ->check("aten::tanh")
      ->run(*formed.regions.nodes[0]->g(c10::attr::Subgraph));
}

// An example is num_batches_tracked, which nothing reads as a tensor.
TEST_F(FormRegions, ACounterOfTheModuleStaysInside) {
  auto module = test::make_module("M");
  module.register_buffer("count", at::zeros({}, at::kLong));
  module.define(R"(
def forward(self, x):
    y = torch.relu(x)
    self.count.add_(1)
    return torch.tanh(y)
)");
  const auto formed = form(module, {at::randn({2})});
  ASSERT_THAT(formed.regions.nodes, SizeIs(1));
  EXPECT_THAT(formed.inside(0), ElementsAre(HasSubstr("aten::relu("), HasSubstr("aten::add_("),
                                            HasSubstr("aten::tanh(")));
}

TEST_F(FormRegions, ABufferThatIsReadAfterItsUpdateIsABreak) {
  auto module = test::make_module("M");
  module.register_buffer("scale", at::ones({}));
  module.define(R"(
def forward(self, x):
    y = torch.relu(x)
    self.scale.add_(1)
    return torch.tanh(y) * self.scale
)");
  const auto formed = form(module, {at::randn({2})});
  EXPECT_THAT(formed.regions.nodes, SizeIs(2));
  ASSERT_THAT(formed.regions.breaks, SizeIs(1));
  EXPECT_EQ(formed.regions.breaks[0].node, "aten::add_.Scalar");
}

TEST_F(FormRegions, AnIfWithATensorResultIsABreakAndItsBlocksHaveRegions) {
  const auto formed = form(R"(
graph(%x : Tensor, %flag : bool):
  %h : Tensor = aten::neg(%x)
  %y : Tensor = prim::If(%flag)
    block0():
      %a : Tensor = aten::relu(%h)
      -> (%a)
    block1():
      %b : Tensor = aten::tanh(%h)
      -> (%b)
  %z : Tensor = aten::sigmoid(%y)
  return (%z)
)");
  EXPECT_THAT(listing(*formed.graph),
              ElementsAre("h = aten_recompute::DifferentiableGraph(x)", "y = prim::If(flag)",
                          "z = aten_recompute::DifferentiableGraph(y)"));
  auto* branch = find_nodes(*formed.graph, "prim::If").at(0);
  EXPECT_THAT(listing(*branch->blocks()[0]),
              ElementsAre("a = aten_recompute::DifferentiableGraph(h)"));
  EXPECT_THAT(listing(*branch->blocks()[1]),
              ElementsAre("b = aten_recompute::DifferentiableGraph(h)"));
  ASSERT_THAT(formed.regions.breaks, SizeIs(1));
  EXPECT_EQ(formed.regions.breaks[0].node, "prim::If");
  EXPECT_EQ(formed.regions.breaks[0].reason, "control flow with tensor results");
}

TEST_F(FormRegions, AListIsMadeInTheRegionThatReadsIt) {
  const auto formed = form(R"(
graph(%x : Tensor, %y : Tensor):
  %zero : int = prim::Constant[value=0]()
  %a : Tensor = aten::relu(%x)
  %list : Tensor[] = prim::ListConstruct(%a, %y)
  %c : Tensor = aten::cat(%list, %zero)
  return (%c)
)");
  EXPECT_THAT(listing(*formed.graph), ElementsAre("c = aten_recompute::DifferentiableGraph(x, y)"));
  EXPECT_THAT(formed.inside(0),
              ElementsAre(HasSubstr("aten::relu("), HasSubstr("prim::ListConstruct("),
                          HasSubstr("aten::cat(")));
}

TEST_F(FormRegions, AReturnedListIsMadeOutside) {
  const auto formed = form(R"(
graph(%x : Tensor):
  %a : Tensor = aten::relu(%x)
  %b : Tensor = aten::tanh(%a)
  %list : Tensor[] = prim::ListConstruct(%a, %b)
  return (%list)
)");
  EXPECT_THAT(listing(*formed.graph), ElementsAre("a, b = aten_recompute::DifferentiableGraph(x)",
                                                  "list = prim::ListConstruct(a, b)"));
}

}  // namespace
}  // namespace aten_recompute
