#include "passes/partition/split_sums.h"

#include <torch/csrc/jit/ir/ir.h>

#include "passes/autodiff/differentiate.h"
#include "passes/partition/extract.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

// The backward of a region whose input %x has three readers; the last reader comes first.
torch::jit::Gradient backward_of(const std::string& ir) {
  const auto graph = test::parse(ir);
  const std::vector<bool> inputs(graph->inputs().size(), true);
  return extract(differentiate(graph, inputs, std::vector<bool>(graph->outputs().size(), true)));
}

TEST(SplitSums, EachSummandOfAnInputsGradientLeavesByItself) {
  const auto gradient = backward_of(R"(
graph(%x : Tensor, %w : Tensor):
  %a : Tensor = aten::sigmoid(%x)
  %b : Tensor = aten::mm(%x, %w)
  %c : Tensor = aten::tanh(%x)
  return (%a, %b, %c)
)");
  ASSERT_EQ(gradient.df->outputs().size(), 2);
  EXPECT_THAT(split_sums(*gradient.df),
              ElementsAre(Summand{0}, Summand{0}, Summand{0}, Summand{1}));
  std::vector<std::string> kinds;
  for (auto* output : gradient.df->outputs())
    kinds.emplace_back(output->node()->kind().toUnqualString());
  EXPECT_THAT(kinds,
              ElementsAre("tanh_backward", "mm_grad_self", "sigmoid_backward", "mm_grad_mat2"));
  for (auto* node : gradient.df->nodes())
    EXPECT_STRNE(node->kind().toQualString(), "aten_recompute::accumulate");
}

// As those of an input that a reader behind the region casts as well.
TEST(SplitSums, SummandsOfACastLeaveInItsType) {
  const auto gradient = backward_of(R"(
graph(%x : Tensor, %w : Tensor):
  %type : int = prim::Constant[value=15]()
  %no : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %c : Tensor = aten::to[cached_cast=1](%x, %type, %no, %no, %none)
  %a : Tensor = aten::sigmoid(%c)
  %b : Tensor = aten::tanh(%c)
  %d : Tensor = aten::mm(%w, %w)
  return (%a, %b, %d)
)");
  const auto whole = gradient.df->copy();
  EXPECT_THAT(split_sums(*whole), ElementsAre(Summand{0}, Summand{1}, Summand{1}));
  EXPECT_THAT(split_sums(*gradient.df, {0}),
              ElementsAre(Summand{0, SummandKind::kOfCast}, Summand{0, SummandKind::kOfCast},
                          Summand{1}, Summand{1}));
  std::vector<std::string> kinds;
  for (auto* output : gradient.df->outputs())
    kinds.emplace_back(output->node()->kind().toUnqualString());
  EXPECT_THAT(kinds,
              ElementsAre("tanh_backward", "sigmoid_backward", "mm_grad_self", "mm_grad_mat2"));
}

// As those of a weight that is an embedding before it is cast for the last layer, and is read
// again.
TEST(SplitSums, SummandsKnowOnWhichSideOfTheCastTheyStand) {
  const auto gradient = backward_of(R"(
graph(%x : Tensor, %w : Tensor):
  %type : int = prim::Constant[value=15]()
  %no : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %before : Tensor = aten::sigmoid(%x)
  %c : Tensor = aten::to[cached_cast=1](%x, %type, %no, %no, %none)
  %a : Tensor = aten::tanh(%c)
  %b : Tensor = aten::exp(%c)
  %after : Tensor = aten::mm(%x, %w)
  return (%before, %a, %b, %after)
)");
  EXPECT_THAT(
      split_sums(*gradient.df, {0}),
      ElementsAre(Summand{0}, Summand{0, SummandKind::kOfCast}, Summand{0, SummandKind::kOfCast},
                  Summand{0, SummandKind::kAfterCast}, Summand{1}));
  std::vector<std::string> kinds;
  for (auto* output : gradient.df->outputs())
    kinds.emplace_back(output->node()->kind().toUnqualString());
  EXPECT_THAT(kinds, ElementsAre("mm_grad_self", "mul", "tanh_backward", "sigmoid_backward",
                                 "mm_grad_mat2"));
  for (auto* node : gradient.df->nodes()) {
    EXPECT_STRNE(node->kind().toQualString(), "aten_recompute::accumulate");
    EXPECT_NE(node->kind(), c10::aten::to);
  }
}

// Only one of the casts is one that autocast keeps.
TEST(SplitSums, SummandsOfOtherCastsArePlain) {
  const auto gradient = backward_of(R"(
graph(%x : Tensor):
  %type : int = prim::Constant[value=15]()
  %double : int = prim::Constant[value=7]()
  %no : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %c : Tensor = aten::to[cached_cast=1](%x, %type, %no, %no, %none)
  %d : Tensor = aten::to(%x, %double, %no, %no, %none)
  %a : Tensor = aten::sigmoid(%c)
  %b : Tensor = aten::tanh(%d)
  return (%a, %b)
)");
  EXPECT_THAT(split_sums(*gradient.df, {0}),
              ElementsAre(Summand{0}, Summand{0, SummandKind::kOfCast}));
}

// Eager, too, sums the gradients of a copy at the copy.
TEST(SplitSums, SumsOfOtherValuesStayWhole) {
  const auto gradient = backward_of(R"(
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %y : Tensor = aten::clone(%x, %none)
  %a : Tensor = aten::sigmoid(%y)
  %b : Tensor = aten::tanh(%y)
  return (%a, %b)
)");
  EXPECT_THAT(split_sums(*gradient.df), ElementsAre(Summand{0}));
  EXPECT_STREQ(gradient.df->outputs()[0]->node()->kind().toQualString(),
               "aten_recompute::accumulate");
}

}  // namespace
}  // namespace aten_recompute
