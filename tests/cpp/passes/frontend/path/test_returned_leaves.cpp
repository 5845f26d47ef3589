#include "passes/frontend/path/returned_leaves.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "runtime/returned_leaf.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;

// A path that makes a leaf of %marked, which `maker` computes from %x. Regions begin at %read.
class ReturnedLeaves {
 public:
  explicit ReturnedLeaves(const std::string& maker, const std::string& end = "",
                          const std::string& returned = "%leaf")
      : graph_(test::parse(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %read : Tensor = aten::relu(%x)
  )" + maker + R"(
  %leaf : Tensor = aten_recompute::require_grad(%marked)
  %result : Tensor = aten::sin(%leaf)
  )" + end + R"(
  return ()" + returned + R"(, %result)
)")) {}

  bool make_before() {
    return make_leaf_before_regions(test::find_value(*graph_, "leaf"),
                                    test::find_value(*graph_, "read")->node());
  }

  bool return_leaf() {
    return return_leaf_of_region(test::find_value(*graph_, "leaf"),
                                 test::find_value(*graph_, "read")->node(), /*number=*/0);
  }

  Node* maker_of(const std::string& name) const { return test::find_value(*graph_, name)->node(); }
  Node* maker_of_result(size_t i) const { return graph_->outputs()[i]->node(); }

 private:
  std::shared_ptr<torch::jit::Graph> graph_;
};

TEST(ReturnedLeaves, ALeafOfACopyIsMadeBeforeTheRegions) {
  ReturnedLeaves path(R"(%detached : Tensor = aten::detach(%x)
  %marked : Tensor = aten::clone(%detached, %none))");
  EXPECT_TRUE(path.make_before());
  auto* leaf = path.maker_of_result(0);
  EXPECT_EQ(leaf->kind(), c10::aten::requires_grad_);
  for (const auto* node : {leaf, path.maker_of("marked"), path.maker_of("detached")}) {
    EXPECT_TRUE(node->hasAttribute(symbols::kBeforeRegions));
    EXPECT_TRUE(node->isBefore(path.maker_of("read")));
  }
  EXPECT_EQ(path.maker_of_result(1)->input(0), leaf->output());
}

TEST(ReturnedLeaves, ALeafOfALeafIsMadeOfWhatThatWasBefore) {
  ReturnedLeaves path(R"(%copy : Tensor = aten::clone(%x, %none)
  %first : Tensor = aten_recompute::require_grad(%copy)
  %marked : Tensor = aten::detach(%first))");
  EXPECT_TRUE(path.make_before());
  EXPECT_EQ(path.maker_of("marked")->input(0)->node(), path.maker_of("copy"));
  EXPECT_FALSE(path.maker_of("first")->isBefore(path.maker_of("read")));
}

TEST(ReturnedLeaves, ALeafThatIsNotDetachedStaysWhereItIs) {
  ReturnedLeaves path(R"(%copy : Tensor = aten::clone(%x, %none)
  %first : Tensor = aten_recompute::require_grad(%copy)
  %marked : Tensor = aten::clone(%first, %none))");
  EXPECT_FALSE(path.make_before());
}

TEST(ReturnedLeaves, WhatARegionComputesStaysWhereItIs) {
  ReturnedLeaves path(R"(%inner : Tensor = aten::tanh(%x)
  %marked : Tensor = aten::detach(%inner))");
  EXPECT_FALSE(path.make_before());
  EXPECT_FALSE(path.maker_of("marked")->hasAttribute(symbols::kBeforeRegions));
}

TEST(ReturnedLeaves, ATensorThatIsReadAsItIsMayNotBecomeALeaf) {
  ReturnedLeaves path(R"(%marked : Tensor = aten::detach(%x)
  %other : Tensor = aten::cos(%marked))");
  EXPECT_FALSE(path.make_before());
}

TEST(ReturnedLeaves, RandomNumbersAreDrawnInTheirOrder) {
  ReturnedLeaves path("%marked : Tensor = aten::rand_like(%x, %none, %none, %none, %none, %none)");
  EXPECT_FALSE(path.make_before());
}

TEST(ReturnedLeaves, MemoryThatIsWrittenIsNotCopiedEarlier) {
  ReturnedLeaves path(R"(%part : Tensor = aten::select(%x, %zero, %zero)
  %written : Tensor = aten::zero_(%part)
  %marked : Tensor = aten::clone(%x, %none))");
  EXPECT_FALSE(path.make_before());
}

const std::string kComputed = R"(%inner : Tensor = aten::tanh(%x)
  %marked : Tensor = aten::detach(%inner))";

TEST(ReturnedLeaves, ALeafOfWhatARegionComputesIsMadeBehindIt) {
  ReturnedLeaves path(kComputed);
  EXPECT_TRUE(path.return_leaf());
  const auto* returned = path.maker_of_result(0);
  EXPECT_EQ(returned->kind(), kReturnLeaf);
  EXPECT_TRUE(path.maker_of_result(1)->isBefore(returned));
  const auto* mark = path.maker_of("leaf");
  const auto* place = mark->input(1)->node();
  EXPECT_EQ(place->kind(), kLeafPlace);
  EXPECT_EQ(returned->input(1), mark->input(1));
  EXPECT_TRUE(place->isBefore(path.maker_of("read")));
  EXPECT_TRUE(place->hasAttribute(symbols::kBeforeRegions));
  EXPECT_EQ(path.maker_of_result(1)->input(0), mark->output());
}

TEST(ReturnedLeaves, AContainerOfTheLeafIsMadeBehindIt) {
  ReturnedLeaves path(kComputed, R"(%list : Tensor[] = prim::ListConstruct(%leaf)
  %tuple : (Tensor, Tensor[]) = prim::TupleConstruct(%leaf, %list)
  %stacked : Tensor = aten::cos(%leaf))",
                      "%tuple");
  EXPECT_TRUE(path.return_leaf());
  const auto* tuple = path.maker_of_result(0);
  const auto* returned = tuple->input(0)->node();
  EXPECT_EQ(returned->kind(), kReturnLeaf);
  EXPECT_EQ(path.maker_of("list")->input(0), returned->output());
  EXPECT_TRUE(returned->isBefore(path.maker_of("list")));
  EXPECT_TRUE(path.maker_of("list")->isBefore(tuple));
  EXPECT_EQ(path.maker_of("stacked")->input(0), path.maker_of("leaf")->output());
}

TEST(ReturnedLeaves, AListThatAnOperatorReadsHoldsWhatTheRegionMakes) {
  ReturnedLeaves path(kComputed, R"(%list : Tensor[] = prim::ListConstruct(%leaf, %read)
  %stacked : Tensor = aten::stack(%list, %zero))");
  EXPECT_TRUE(path.return_leaf());
  EXPECT_EQ(path.maker_of("list")->input(0), path.maker_of("leaf")->output());
}

TEST(ReturnedLeaves, AReturnedListThatAnOperatorReadsTooIsRefused) {
  ReturnedLeaves path(kComputed, R"(%list : Tensor[] = prim::ListConstruct(%leaf, %read)
  %stacked : Tensor = aten::stack(%list, %zero))",
                      "%list");
  EXPECT_FALSE(path.return_leaf());
  EXPECT_EQ(path.maker_of("leaf")->inputs().size(), 1);
}

TEST(ReturnedLeaves, AViewOfALeafIsNotTheLeaf) {
  ReturnedLeaves path(kComputed, "%view : Tensor = aten::t(%leaf)", "%view");
  EXPECT_FALSE(path.return_leaf());
}

}  // namespace
}  // namespace aten_recompute
