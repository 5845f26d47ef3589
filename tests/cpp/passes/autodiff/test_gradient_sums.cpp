#include "passes/autodiff/gradient_sums.h"

#include "ir/symbols.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_value;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Forward values x, h, a list made in the graph and one given to it, and gradients to be added.
class GradientSumsTest : public test::TorchTest {
 protected:
  GradientSumsTest()
      : graph_(test::parse(R"(
graph(%x : Tensor, %given : Tensor[], %a : Tensor, %b : Tensor, %c : Tensor,
      %list_a : Tensor[], %list_b : Tensor[]):
  %h : Tensor = aten::relu(%x)
  %list : Tensor[] = prim::ListConstruct(%x, %h)
  return (%list)
)")),
        sums_(*graph_) {
    graph_->setInsertPoint(graph_->return_node());
  }

  torch::jit::Value* value(const std::string& name) { return find_value(*graph_, name); }
  // Nodes that the sums have added.
  std::vector<std::string> added() {
    auto lines = test::listing(*graph_);
    lines.erase(lines.begin(), lines.begin() + 2);
    return lines;
  }

  std::shared_ptr<torch::jit::Graph> graph_;
  GradientSums sums_;
};

TEST_F(GradientSumsTest, OneGradientNeedsNoSum) {
  sums_.require(value("h"));
  EXPECT_EQ(sums_.gradient_of(value("h")), nullptr);
  sums_.add(value("h"), value("a"));
  EXPECT_EQ(sums_.gradient_of(value("h")), value("a"));
  EXPECT_THAT(added(), IsEmpty());
}

TEST_F(GradientSumsTest, FurtherGradientsAreAddedInTheirOrder) {
  sums_.require(value("h"));
  for (const auto* name : {"a", "b", "c"})
    sums_.add(value("h"), value(name));
  EXPECT_THAT(added(), ElementsAre("$0 = aten_recompute::accumulate(a, b)",
                                   "$1 = aten_recompute::accumulate($0, c)"));
  EXPECT_FALSE(sums_.gradient_of(value("h"))->node()->hasAttribute(symbols::kOfInput));
}

TEST_F(GradientSumsTest, ASumOfAnInputsGradientsNamesTheInput) {
  sums_.require(value("x"));
  sums_.add(value("x"), value("a"));
  sums_.add(value("x"), value("b"));
  EXPECT_EQ(sums_.gradient_of(value("x"))->node()->i(symbols::kOfInput), 0);
}

TEST_F(GradientSumsTest, GradientsOfWhatRequiresNoneAreDropped) {
  EXPECT_FALSE(sums_.requires_grad(value("h")));
  sums_.add(value("h"), value("a"));
  EXPECT_EQ(sums_.gradient_of(value("h")), nullptr);
}

TEST_F(GradientSumsTest, AValueAndItsCastHaveOneGradient) {
  sums_.require(value("x"));
  sums_.share_gradient(value("h"), value("x"));
  sums_.add(value("h"), value("a"));
  EXPECT_EQ(sums_.gradient_of(value("x")), value("a"));
  EXPECT_EQ(sums_.gradient_of(value("h")), value("a"));
}

TEST_F(GradientSumsTest, ListsOfGradientsAreAddedElementByElement) {
  sums_.require(value("list"));
  sums_.add(value("list"), value("list_a"));
  sums_.add(value("list"), value("list_b"));
  EXPECT_THAT(added(), ElementsAre("$0 = aten_recompute::accumulate_list(list_a, list_b)"));
}

TEST_F(GradientSumsTest, GradientsOfAGivenListMayBeMissing) {
  sums_.require(value("given"));
  sums_.add(value("given"), value("list_a"));
  EXPECT_THAT(added(), ElementsAre("$0 = aten_recompute::optional_list(list_a)"));
  EXPECT_EQ(*sums_.gradient_of(value("given"))->type(),
            *c10::ListType::create(c10::OptionalType::ofTensor()));
}

TEST_F(GradientSumsTest, AListOfGradientsHasNoneForValuesWithoutOne) {
  sums_.require(value("x"));
  EXPECT_EQ(sums_.insert_list_of({value("x"), value("h")}), nullptr);
  sums_.add(value("x"), value("a"));
  ASSERT_NE(sums_.insert_list_of({value("x"), value("h")}), nullptr);
  EXPECT_THAT(added(), ElementsAre("$0 = prim::ListConstruct(a, None)"));
}

TEST_F(GradientSumsTest, OnlyListsOfTensorsAreSuch) {
  EXPECT_TRUE(is_list_of_tensors(value("list")));
  EXPECT_FALSE(is_list_of_tensors(value("x")));
}

}  // namespace
}  // namespace aten_recompute
