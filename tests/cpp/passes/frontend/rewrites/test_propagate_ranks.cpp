#include "passes/frontend/rewrites/propagate_ranks.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <optional>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_value;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::Graph;

class PropagateRanks : public test::TorchTest {};

using Rank = std::optional<size_t>;

Rank rank_of(const Graph& graph, const std::string& name) {
  return find_value(graph, name)->type()->expect<c10::TensorType>()->dim();
}

void set_rank(const Graph& graph, const std::string& name, size_t rank) {
  find_value(graph, name)
      ->setType(c10::TensorType::create(std::nullopt, std::nullopt, rank, std::nullopt));
}

// Returns the graph of this text with ranks propagated from those of some of its values.
std::shared_ptr<Graph> propagated(const std::string& ir,
                                  const std::map<std::string, size_t>& ranks) {
  const auto graph = test::parse(ir);
  for (const auto& [name, rank] : ranks)
    set_rank(*graph, name, rank);
  EXPECT_THAT(propagate_ranks(graph, test::make_module("M")._ivalue()), IsEmpty());
  return graph;
}

TEST_F(PropagateRanks, AnElementwiseOperatorKeepsTheRank) {
  const auto graph = propagated(R"(
graph(%x : Tensor, %unknown : Tensor):
  %y : Tensor = aten::relu(%x)
  %z : Tensor = aten::tanh(%y)
  %none : Tensor = aten::relu(%unknown)
  return (%z, %none)
)",
                                {{"x", 3}});
  EXPECT_EQ(rank_of(*graph, "z"), Rank(3));
  EXPECT_EQ(rank_of(*graph, "none"), std::nullopt);
}

TEST_F(PropagateRanks, OfTwoOperandsTheLargerRankCounts) {
  const auto graph = propagated(R"(
graph(%x : Tensor, %y : Tensor, %unknown : Tensor, %s : float):
  %a : Tensor = aten::mul(%x, %y)
  %b : Tensor = aten::mul(%y, %x)
  %c : Tensor = aten::mul(%x, %s)
  %d : Tensor = aten::mul(%x, %unknown)
  return (%a, %b, %c, %d)
)",
                                {{"x", 1}, {"y", 4}});
  EXPECT_EQ(rank_of(*graph, "a"), Rank(4));
  EXPECT_EQ(rank_of(*graph, "b"), Rank(4));
  EXPECT_EQ(rank_of(*graph, "c"), Rank(1));
  EXPECT_EQ(rank_of(*graph, "d"), std::nullopt);
}

TEST_F(PropagateRanks, AViewHasAsManyDimensionsAsTheListHasNumbers) {
  const auto graph = propagated(R"(
graph(%x : Tensor, %n : int, %given : int[]):
  %list : int[] = prim::ListConstruct(%n, %n, %n)
  %constant : int[] = prim::Constant[value=[2, 3]]()
  %a : Tensor = aten::view(%x, %list)
  %b : Tensor = aten::reshape(%x, %constant)
  %c : Tensor = aten::view(%x, %given)
  return (%a, %b, %c)
)",
                                {});
  EXPECT_EQ(rank_of(*graph, "a"), Rank(3));
  EXPECT_EQ(rank_of(*graph, "b"), Rank(2));
  EXPECT_EQ(rank_of(*graph, "c"), std::nullopt);
}

TEST_F(PropagateRanks, UnsqueezeAddsADimensionAndSelectRemovesOne) {
  const auto graph = propagated(R"(
graph(%x : Tensor, %n : int):
  %more : Tensor = aten::unsqueeze(%x, %n)
  %less : Tensor = aten::select(%x, %n, %n)
  return (%more, %less)
)",
                                {{"x", 2}});
  EXPECT_EQ(rank_of(*graph, "more"), Rank(3));
  EXPECT_EQ(rank_of(*graph, "less"), Rank(1));
}

TEST_F(PropagateRanks, PartsOfATensorHaveItsRank) {
  const auto graph = propagated(R"(
graph(%x : Tensor, %n : int, %list : Tensor[]):
  %parts : Tensor[] = aten::chunk(%x, %n, %n)
  %a : Tensor, %b : Tensor = prim::ListUnpack(%parts)
  %c : Tensor, %d : Tensor = prim::ListUnpack(%list)
  return (%a, %c)
)",
                                {{"x", 3}});
  EXPECT_EQ(rank_of(*graph, "b"), Rank(3));
  EXPECT_EQ(rank_of(*graph, "c"), std::nullopt);
}

TEST_F(PropagateRanks, AnIfHasARankIfBothBranchesHaveIt) {
  const auto graph = propagated(R"(
graph(%x : Tensor, %b : bool, %n : int):
  %same : Tensor = prim::If(%b)
    block0():
      %p : Tensor = aten::relu(%x)
      -> (%p)
    block1():
      -> (%x)
  %other : Tensor = prim::If(%b)
    block0():
      %q : Tensor = aten::unsqueeze(%x, %n)
      -> (%q)
    block1():
      -> (%x)
  return (%same, %other)
)",
                                {{"x", 2}});
  EXPECT_EQ(rank_of(*graph, "same"), Rank(2));
  EXPECT_EQ(rank_of(*graph, "other"), std::nullopt);
}

// ---- linear ----

const char* const kLinear = R"(
def forward(self, x):
    return torch.linear(x, self.weight, self.bias)
)";

// The ranks that are assumed of attributes after propagation through kLinear.
std::vector<FoldedAttribute> assumed_of(const torch::jit::Module& module, Rank* rank) {
  const auto graph = test::method_graph(module);
  set_rank(*graph, graph->inputs()[1]->debugName(), 3);
  auto assumptions = propagate_ranks(graph, module._ivalue());
  *rank = graph->outputs()[0]->type()->expect<c10::TensorType>()->dim();
  return assumptions;
}

torch::jit::Module linear_with_weight(const at::Tensor& weight, const char* source) {
  auto module = test::make_module("Linear");
  module.register_parameter("weight", weight, /*is_buffer=*/false);
  module.register_parameter("bias", at::zeros({2}), /*is_buffer=*/false);
  module.define(source);
  return module;
}

TEST_F(PropagateRanks, TheMatrixOfALinearIsAssumedToStayOne) {
  Rank rank;
  const auto assumptions = assumed_of(linear_with_weight(at::ones({2, 4}), kLinear), &rank);
  EXPECT_EQ(rank, Rank(3));
  ASSERT_THAT(assumptions, SizeIs(1));
  EXPECT_THAT(assumptions[0].path, ElementsAre("weight"));
  EXPECT_EQ(assumptions[0].rank, 2);
}

TEST_F(PropagateRanks, AVectorAsTheWeightOfALinearGivesNoRank) {
  Rank rank;
  EXPECT_THAT(assumed_of(linear_with_weight(at::ones({4}), kLinear), &rank), IsEmpty());
  EXPECT_EQ(rank, std::nullopt);
}

TEST_F(PropagateRanks, AWeightThatTheMethodSetsIsNotAssumed) {
  Rank rank;
  const auto module = linear_with_weight(at::ones({2, 4}), R"(
def forward(self, x):
    self.weight = self.weight * 2
    return torch.linear(x, self.weight, self.bias)
)");
  EXPECT_THAT(assumed_of(module, &rank), IsEmpty());
  EXPECT_EQ(rank, std::nullopt);
}

}  // namespace
}  // namespace aten_recompute
