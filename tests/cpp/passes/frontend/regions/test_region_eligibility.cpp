#include "passes/frontend/regions/region_eligibility.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using torch::jit::Graph;
using torch::jit::Node;

class RegionEligibility : public test::TorchTest {};

// Judges the only node of this kind in a graph; nodes named in `in_region` stand in the region.
Eligibility judged(const std::shared_ptr<Graph>& graph, const std::string& kind,
                   const std::vector<std::string>& in_region = {},
                   const std::unordered_set<std::string>& set_attributes = {}) {
  const torch::jit::AliasDb aliases(graph);
  RegionFacts facts{aliases, {}, set_attributes, {}};
  std::unordered_set<Node*> region;
  for (const auto& name : in_region)
    region.insert(test::find_value(*graph, name)->node());
  const auto nodes = test::find_nodes(*graph, kind);
  EXPECT_EQ(nodes.size(), 1U) << kind;
  return EligibilityChecker(graph->block(), facts, region).check(nodes.at(0));
}

Eligibility judged(const std::string& ir, const std::string& kind,
                   const std::vector<std::string>& in_region = {}) {
  return judged(test::parse(ir), kind, in_region);
}

TEST_F(RegionEligibility, AFunctionalOperatorIsPartOfARegion) {
  const auto relu = judged(R"(
graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  return (%y)
)",
                           "aten::relu");
  EXPECT_EQ(relu.place, Place::kRegion);
  EXPECT_THAT(relu.reason, IsEmpty());
}

TEST_F(RegionEligibility, ATupleStaysOutside) {
  const auto tuple = judged(R"(
graph(%x : Tensor):
  %t : (Tensor, Tensor) = prim::TupleConstruct(%x, %x)
  return (%t)
)",
                            "prim::TupleConstruct");
  EXPECT_EQ(tuple.place, Place::kOutside);
  EXPECT_EQ(tuple.reason, "is not an operator");
}

TEST_F(RegionEligibility, AListMayOnlyBeReadInTheRegionThatMakesIt) {
  const std::string ir = R"(
graph(%x : Tensor, %n : int):
  %list : Tensor[] = prim::ListConstruct(%x, %x)
  %y : Tensor = aten::cat(%list, %n)
  return (%y)
)";
  EXPECT_EQ(judged(ir, "aten::cat", {"list"}).place, Place::kRegion);
  const auto outside = judged(ir, "aten::cat");
  EXPECT_EQ(outside.place, Place::kOutside);
  EXPECT_EQ(outside.reason, "takes a list of tensors from outside the region");
}

TEST_F(RegionEligibility, APrintEndsARegionAndAWarningDoesNot) {
  const auto print = judged(R"(
graph(%x : Tensor):
  prim::Print(%x)
  return (%x)
)",
                            "prim::Print");
  EXPECT_EQ(print.place, Place::kBreak);
  EXPECT_EQ(print.reason, "has side effects");
  EXPECT_EQ(judged(R"(
graph(%x : Tensor, %text : str, %level : int):
  aten::warn(%text, %level)
  return (%x)
)",
                   "aten::warn")
                .place,
            Place::kRegion);
}

TEST_F(RegionEligibility, QuestionsToAutogradStayOutsideAndRunsOfItEndARegion) {
  EXPECT_EQ(judged(R"(
graph(%x : Tensor):
  %leaf : bool = aten::is_leaf(%x)
  return (%leaf)
)",
                   "aten::is_leaf")
                .place,
            Place::kOutside);
  const auto runs = judged(R"(
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %no : bool = prim::Constant[value=0]()
  aten::backward(%x, %none, %none, %no)
  return (%x)
)",
                           "aten::backward");
  EXPECT_EQ(runs.place, Place::kBreak);
  EXPECT_EQ(runs.reason, "runs autograd inside the method");
}

// ---- control flow ----

TEST_F(RegionEligibility, AnIfThatComputesATensorEndsARegion) {
  const auto branch = judged(R"(
graph(%x : Tensor, %b : bool):
  %y : Tensor = prim::If(%b)
    block0():
      -> (%x)
    block1():
      -> (%x)
  return (%y)
)",
                             "prim::If");
  EXPECT_EQ(branch.place, Place::kBreak);
  EXPECT_EQ(branch.reason, "control flow with tensor results");
}

TEST_F(RegionEligibility, AnIfThatOnlyRaisesIsPartOfARegion) {
  EXPECT_EQ(judged(R"(
graph(%x : Tensor, %b : bool, %text : str):
  %none : NoneType = prim::Constant()
  prim::If(%b)
    block0():
      prim::RaiseException(%text, %none)
      -> ()
    block1():
      -> ()
  return (%x)
)",
                   "prim::If")
                .place,
            Place::kRegion);
}

TEST_F(RegionEligibility, AnIfThatWritesEndsARegion) {
  const auto branch = judged(R"(
graph(%x : Tensor, %b : bool):
  prim::If(%b)
    block0():
      %y : Tensor = aten::relu_(%x)
      -> ()
    block1():
      -> ()
  return (%x)
)",
                             "prim::If");
  EXPECT_EQ(branch.place, Place::kBreak);
  EXPECT_EQ(branch.reason, "control flow with effects or tensors");
}

// ---- writes ----

TEST_F(RegionEligibility, AWriteToAnInputEndsARegion) {
  const auto write = judged(R"(
graph(%x : Tensor):
  %y : Tensor = aten::relu_(%x)
  return (%x)
)",
                            "aten::relu_");
  EXPECT_EQ(write.place, Place::kBreak);
  EXPECT_THAT(write.reason, HasSubstr("writes in place"));
}

// A method of a module with a counter; returns how its update is judged.
Place judged_update(const std::string& source) {
  auto module = test::make_module("Counter");
  module.register_buffer("count", at::zeros({}, at::kLong));
  module.define(source);
  return judged(test::method_graph(module), "aten::add_").place;
}

TEST_F(RegionEligibility, ACounterThatNobodyReadsAsATensorIsPartOfARegion) {
  EXPECT_EQ(judged_update(R"(
def forward(self, x):
    self.count.add_(1)
    return x
)"),
            Place::kRegion);
}

TEST_F(RegionEligibility, ACounterThatIsReadAsATensorEndsARegion) {
  EXPECT_EQ(judged_update(R"(
def forward(self, x):
    count = self.count
    count.add_(1)
    return x * count
)"),
            Place::kBreak);
  EXPECT_EQ(judged_update(R"(
def forward(self, x):
    self.count.add_(1)
    return x * self.count
)"),
            Place::kBreak)
      << "the same buffer, read a second time";
}

// ---- attributes ----

TEST_F(RegionEligibility, AttributesAreReadOutsideUnlessTheMethodSetsThem) {
  const auto module = test::make_linear(2, 3);
  auto graph = test::method_graph(module);
  for (auto* node : test::find_nodes(*graph, "prim::GetAttr")) {
    if (node->s(c10::attr::name) == "bias") {
      node->output()->replaceAllUsesWith(graph->inputs()[1]);
      node->destroy();
    }
  }
  EXPECT_EQ(judged(graph, "prim::GetAttr").place, Place::kOutside);
  const auto read = judged(graph, "prim::GetAttr", {}, {"weight"});
  EXPECT_EQ(read.place, Place::kBreak);
  EXPECT_EQ(read.reason, "reads an attribute that the method sets");
}

// ---- types ----

TEST_F(RegionEligibility, OnlyListsHoldTensorsAsLists) {
  EXPECT_TRUE(is_list_with_tensors(*c10::ListType::ofTensors()));
  EXPECT_TRUE(is_list_with_tensors(*c10::ListType::create(c10::ListType::ofTensors())));
  EXPECT_FALSE(is_list_with_tensors(*c10::TensorType::get()));
  EXPECT_FALSE(is_list_with_tensors(*c10::OptionalType::ofTensor()));
  EXPECT_FALSE(is_list_with_tensors(*c10::ListType::ofInts()));
}

}  // namespace
}  // namespace aten_recompute
