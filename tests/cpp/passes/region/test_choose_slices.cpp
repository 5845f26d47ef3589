// Which layouts with slices are tried, with compilations that only say what a plan would take.
#include "passes/region/choose_slices.h"

#include <ATen/Functions.h>
#include <aten_recompute/errors.h>
#include <torch/csrc/jit/ir/ir.h>

#include <set>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

class ChooseSlices : public test::TorchTest {
 protected:
  // Chooses slices of two functions, of which one reads twice as many elements, where no plan of
  // the region as it is keeps the budget. A plan with k stretches in slices takes seconds[k] of the
  // time without recomputation.
  size_t num_chosen(const std::vector<double>& seconds, CostModel cost_model) {
    torch::jit::Module module("M");
    module.define("def forward(self, x, y):\n    return torch.tanh(x) * x, torch.sin(y) * y\n");
    auto graph = module.get_method("forward").graph()->copy();
    graph->eraseInput(0);
    auto* results = graph->outputs()[0]->node();
    graph->eraseOutput(0);
    for (auto* element : results->inputs())
      graph->registerOutput(element);
    results->destroy();
    const std::vector<c10::IValue> inputs{at::rand({1000, 100}), at::rand({1000, 50})};
    constexpr int64_t kUnplanned = 2'000'000;
    RegionInput input{.graph = graph,
                      .requires_grad = {true, true},
                      .is_attribute = {false, false},
                      .options = {},
                      .inputs = inputs};
    input.options.strategy = StrategyKind::kBudget;
    input.options.memory_fraction = 0.5;
    input.options.exact = false;
    input.options.cost_model = cost_model;
    const CompileRegion as_it_is = [](const RegionInput&) -> RegionGraphs {
      BudgetUnreachableError error("the budget is out of reach");
      error.smallest_peak_bytes = kUnplanned;
      error.limit_bytes = kUnplanned / 2;
      error.unplanned_peak_bytes = kUnplanned;
      throw error;
    };
    const CompileSliced sliced = [&](const RegionInput&, const RegionLayout& layout) {
      tried_.insert(layout.num_sliced);
      RegionGraphs graphs;
      graphs.layout = layout;
      graphs.plan.emplace();
      graphs.plan->metrics.unplanned_seconds = 1.0;
      graphs.plan->metrics.predicted_seconds = seconds.at(layout.num_sliced);
      return graphs;
    };
    return in_slices_if_needed(input, as_it_is, sliced).layout.num_sliced;
  }

  std::set<size_t> tried_;  // numbers of stretches
};

TEST_F(ChooseSlices, MoreOperatorsRunInSlicesWhereThatIsFaster) {
  EXPECT_EQ(num_chosen({0.0, 3.0, 1.2}, CostModel::kMeasured), 2);
  EXPECT_THAT(tried_, ElementsAre(1, 2));
}

TEST_F(ChooseSlices, FewOperatorsRunInSlicesWhereMoreAreSlower) {
  EXPECT_EQ(num_chosen({0.0, 1.5, 1.6}, CostModel::kMeasured), 1);
  EXPECT_THAT(tried_, ElementsAre(1, 2));
}

TEST_F(ChooseSlices, NoMoreAreTriedWhereLittleIsComputedAgain) {
  EXPECT_EQ(num_chosen({0.0, 1.1, 1.0}, CostModel::kMeasured), 1);
  EXPECT_THAT(tried_, ElementsAre(1));
}

TEST_F(ChooseSlices, ComputedTimesDoNotDecide) {
  EXPECT_EQ(num_chosen({0.0, 3.0, 1.2}, CostModel::kFlops), 1);
}

}  // namespace
}  // namespace aten_recompute
