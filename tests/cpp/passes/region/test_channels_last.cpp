#include "passes/region/channels_last.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

class ChannelsLast : public test::TorchTest {};

// Operands of a convolution without bias.
const std::string kConstants = R"(
  %none : NoneType = prim::Constant()
  %one : int = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %ones : int[] = prim::Constant[value=[1, 1]]()
  %zeros : int[] = prim::Constant[value=[0, 0]]()
)";

std::shared_ptr<torch::jit::Graph> changed(const std::string& inputs, const std::string& body) {
  auto graph = with_channels_last(*test::parse("graph(" + inputs + "):" + kConstants + body));
  if (graph != nullptr)
    graph->lint();
  return graph;
}

std::string convolution(const std::string& result, const std::string& input) {
  return "  %" + result + " : Tensor = aten::conv2d(%" + input +
         ", %w, %none, %ones, %zeros, %ones, %one)\n";
}

TEST_F(ChannelsLast, AStretchBeginsAtAConvolutionAndEndsWhereLayoutMatters) {
  const auto graph = changed("%x : Tensor, %w : Tensor", convolution("y", "x") + R"(
  %z : Tensor = aten::relu(%y)
  %f : Tensor = aten::flatten(%z, %one, %one)
  return (%f)
)");
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(
      test::listing(*graph),
      ElementsAre("$0 = aten_recompute::channels_last(x)",
                  "y = aten::conv2d($0, w, None, [1, 1], [0, 0], [1, 1], 1)", "z = aten::relu(y)",
                  "$1 = aten_recompute::channels_first(z)", "f = aten::flatten($1, 1, 1)"));
}

TEST_F(ChannelsLast, OutputsKeepTheirLayout) {
  const auto graph = changed("%x : Tensor, %w : Tensor", convolution("y", "x") + "  return (%y)\n");
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(graph->outputs()[0]->node()->kind().toQualString(),
            std::string("aten_recompute::channels_first"));
}

TEST_F(ChannelsLast, NothingChangesBetweenConvolutions) {
  const auto graph = changed("%x : Tensor, %w : Tensor",
                             convolution("y", "x") + convolution("z", "y") + "  return (%z)\n");
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(test::find_nodes(*graph, "aten_recompute::channels_last").size(), 1);
  EXPECT_EQ(test::find_nodes(*graph, "aten_recompute::channels_first").size(), 1);
}

TEST_F(ChannelsLast, ConcatenatedImagesHaveOneLayout) {
  const auto graph = changed("%x : Tensor, %w : Tensor", convolution("y", "x") + R"(
  %both : Tensor[] = prim::ListConstruct(%y, %x)
  %z : Tensor = aten::cat(%both, %one)
  return (%z)
)");
  ASSERT_NE(graph, nullptr);
  const auto list = test::find_nodes(*graph, "prim::ListConstruct")[0];
  EXPECT_EQ(list->input(0)->debugName(), "y");
  EXPECT_EQ(list->input(1), test::find_nodes(*graph, "aten_recompute::channels_last")[0]->output());
}

TEST_F(ChannelsLast, SizesAreReadAsTheyAreAndStridesAreNot) {
  const auto graph = changed("%x : Tensor, %w : Tensor", convolution("y", "x") + R"(
  %size : int[] = aten::size(%y)
  %stride : int[] = aten::stride(%y)
  return (%size, %stride)
)");
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(test::find_nodes(*graph, "aten::size")[0]->input()->debugName(), "y");
  EXPECT_NE(test::find_nodes(*graph, "aten::stride")[0]->input()->debugName(), "y");
}

TEST_F(ChannelsLast, TheGradientOfAMeanIsPutLast) {
  const auto graph = changed("%x : Tensor, %w : Tensor", convolution("y", "x") + R"(
  %z : Tensor = aten::adaptive_avg_pool2d(%y, %ones)
  return (%z)
)");
  ASSERT_NE(graph, nullptr);
  const auto pool = test::find_nodes(*graph, "aten::adaptive_avg_pool2d")[0];
  EXPECT_EQ(pool->input(0)->node()->kind().toQualString(),
            std::string("aten_recompute::channels_last"));
  EXPECT_EQ(pool->input(0)->node()->input()->debugName(), "y");
}

TEST_F(ChannelsLast, GraphsThatWriteToAnImageStayAsTheyAre) {
  EXPECT_EQ(changed("%x : Tensor, %w : Tensor", convolution("y", "x") + R"(
  %z : Tensor = aten::relu_(%x)
  return (%y)
)"),
            nullptr);
}

TEST_F(ChannelsLast, GraphsThatWriteToAViewOfAnImageStayAsTheyAre) {
  EXPECT_EQ(changed("%x : Tensor, %w : Tensor", convolution("y", "x") + R"(
  %part : Tensor = aten::select(%y, %zero, %zero)
  %written : Tensor = aten::zero_(%part)
  %z : Tensor = aten::relu(%y)
  return (%z)
)"),
            nullptr);
}

TEST_F(ChannelsLast, GraphsWithoutConvolutionsStayAsTheyAre) {
  EXPECT_EQ(changed("%x : Tensor", "  %y : Tensor = aten::relu(%x)\n  return (%y)\n"), nullptr);
}

// %last has its channels last in eager PyTorch.
const std::string kPutLast = R"(
  %there : int[] = prim::Constant[value=[0, 2, 3, 1]]()
  %back : int[] = prim::Constant[value=[0, 3, 1, 2]]()
  %p : Tensor = aten::permute(%y, %there)
  %c : Tensor = aten::contiguous(%p, %zero)
  %last : Tensor = aten::permute(%c, %back)
)";

TEST_F(ChannelsLast, AStretchThatTheProgramPutsLastIsLeftAlone) {
  const auto graph = changed("%x : Tensor, %w : Tensor",
                             convolution("y", "x") + kPutLast + convolution("z", "last") + R"(
  %r : Tensor = aten::relu(%z)
  %s : Tensor = aten::add(%y, %r, %one)
  return (%s)
)");
  ASSERT_NE(graph, nullptr);
  EXPECT_THAT(
      test::listing(*graph),
      ElementsAre("$0 = aten_recompute::channels_last(x)",
                  "y = aten::conv2d($0, w, None, [1, 1], [0, 0], [1, 1], 1)",
                  "$1 = aten_recompute::channels_first(y)", "p = aten::permute($1, [0, 2, 3, 1])",
                  "c = aten::contiguous(p, 0)", "last = aten::permute(c, [0, 3, 1, 2])",
                  "z = aten::conv2d(last, w, None, [1, 1], [0, 0], [1, 1], 1)", "r = aten::relu(z)",
                  "s = aten::add($1, r, 1)"));
}

TEST_F(ChannelsLast, ListsOfImagesInSeveralLayoutsAreLeftAlone) {
  const auto graph = changed("%x : Tensor, %w : Tensor", convolution("y", "x") + kPutLast + R"(
  %both : Tensor[] = prim::ListConstruct(%y, %last)
  %z : Tensor = aten::cat(%both, %one)
  return (%z)
)");
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(test::find_nodes(*graph, "aten_recompute::channels_first").size(), 1);
  EXPECT_EQ(test::find_nodes(*graph, "aten_recompute::channels_last").size(), 1);
}

TEST_F(ChannelsLast, ViewsAndCopiesInOrderDoNotEndIt) {
  const auto graph = changed("%x : Tensor, %w : Tensor, %sizes : int[]", R"(
  %v : Tensor = aten::view(%x, %sizes)
  %t : Tensor = aten::transpose(%v, %zero, %one)
  %c : Tensor = aten::contiguous(%t, %zero)
)" + convolution("z", "c") + "  return (%z)\n");
  ASSERT_NE(graph, nullptr);
  EXPECT_EQ(test::find_nodes(*graph, "aten_recompute::channels_last")[0]->input()->debugName(),
            "c");
}

TEST_F(ChannelsLast, SaysWhetherTheProgramChoseItsLayouts) {
  const auto image = at::ones({2, 3, 4, 5});
  EXPECT_TRUE(are_in_order({image, 3, at::ones({2, 3}), image.slice(1, 0, 2), image[0]}));
  EXPECT_TRUE(are_in_order({at::ones({1, 3, 1, 1}).expand({2, 3, 4, 5}), at::Tensor()}));
  EXPECT_FALSE(are_in_order({3, image.contiguous(at::MemoryFormat::ChannelsLast)}));
  EXPECT_FALSE(are_in_order({image.transpose(2, 3)}));
  // One channel is its own last one.
  EXPECT_FALSE(are_in_order({at::ones({2, 1, 4, 5})
                                 .contiguous(at::MemoryFormat::ChannelsLast)
                                 .as_strided({2, 1, 4, 5}, {20, 1, 5, 1})}));
}

}  // namespace
}  // namespace aten_recompute
