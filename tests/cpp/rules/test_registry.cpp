// Tests what rules capture, and replays.
#include "rules/registry.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "ir/save_plan.h"
#include "passes/autodiff/differentiate.h"
#include "rules/kernels/stand_in.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

using Rules = test::TorchTest;

bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

// ---- tensors of which only the layout is read ----

TEST_F(Rules, AStandInHasTheLayoutAndReadsAsZeros) {
  const auto x = at::randn({2, 3, 4, 5}).to(at::kHalf).contiguous(at::MemoryFormat::ChannelsLast);
  const auto y = stand_in(x.sizes().vec(), x.strides().vec(), x.scalar_type(), x.device());
  EXPECT_EQ(y.sizes(), x.sizes());
  EXPECT_EQ(y.strides(), x.strides());
  EXPECT_EQ(y.scalar_type(), x.scalar_type());
  EXPECT_TRUE(at::equal(y, at::zeros_like(x)));
  const auto z = stand_in(layout(x));
  EXPECT_EQ(z.sizes(), x.sizes());
  EXPECT_EQ(z.strides(), x.strides());
  EXPECT_EQ(z.scalar_type(), x.scalar_type());
  EXPECT_EQ(stand_in(layout(at::zeros({}))).dim(), 0);
  EXPECT_EQ(stand_in({0, 3}, {3, 1}, at::kFloat, at::kCPU).numel(), 0);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // which need the address space
  // The tensor is larger than any memory, so it cannot have been allocated.
  EXPECT_EQ(stand_in({1LL << 42}, {1}, at::kByte, at::kCPU).numel(), 1LL << 42);
#endif
}

TEST_F(Rules, APoolingDoesNotCaptureItsInput) {
  for (const std::string call : {"aten::avg_pool2d(%h, %two, %two, %zero, %no, %no, %none)",
                                 "aten::max_pool2d(%h, %two, %two, %zero, %one, %no)",
                                 "aten::adaptive_avg_pool2d(%h, %two)"}) {
    const auto joint = differentiate(test::parse(R"(
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %no : bool = prim::Constant[value=0]()
  %zero : int[] = prim::Constant[value=[0, 0]]()
  %one : int[] = prim::Constant[value=[1, 1]]()
  %two : int[] = prim::Constant[value=[2, 2]]()
  %h : Tensor = aten::neg(%x)
  %y : Tensor = )" + call + "\n  return (%y)\n"),
                                     {true}, {true});
    for (const auto* value : captured_values(joint))
      EXPECT_NE(value->debugName(), "h") << call;
  }
}

TEST_F(Rules, HardtanhReadsItsResultWhereNoTypeRoundsABoundInwards) {
  const std::vector<std::pair<std::string, bool>> cases{
      {"-1., 1.", true},    {"0., 6.", true},
      {"-0.3, 0.3", true},   // 0.30078125 in bfloat16, 0.300048828125 in half
      {"-0.5, 0.7", false},  // 0.69921875 in bfloat16
      {"-0.1, 0.5", false},  // -0.0999755859375 in half
      {"0.3, 0.5", false},  {"-1e+30, 1e+30", true},  // infinity in half
  };
  for (const auto& [bounds, reads_result] : cases) {
    const auto comma = bounds.find(',');
    const auto joint = differentiate(test::parse(R"(
graph(%x : Tensor):
  %lower : float = prim::Constant[value=)" + bounds.substr(0, comma) +
                                                 R"(]()
  %upper : float = prim::Constant[value=)" + bounds.substr(comma + 2) +
                                                 R"(]()
  %h : Tensor = aten::neg(%x)
  %y : Tensor = aten::hardtanh(%h, %lower, %upper)
  return (%y)
)"),
                                     {true}, {true});
    const auto nodes = test::find_nodes(*joint.graph, "aten::hardtanh_backward");
    ASSERT_EQ(nodes.size(), 1U);
    EXPECT_EQ(nodes[0]->input(1)->debugName(), reads_result ? "y" : "h") << bounds;
  }
}

TEST_F(Rules, TheGradientOfAConvolutionsWeightComesFirst) {
  const auto joint = differentiate(test::parse(R"(
graph(%x : Tensor, %w : Tensor, %b : Tensor):
  %one : int = prim::Constant[value=1]()
  %zeros : int[] = prim::Constant[value=[0, 0]]()
  %ones : int[] = prim::Constant[value=[1, 1]]()
  %h : Tensor = aten::neg(%x)
  %y : Tensor = aten::conv2d(%h, %w, %b, %ones, %zeros, %ones, %one)
  return (%y)
)"),
                                   {true, true, true}, {true});
  std::vector<bool> reads_input;
  for (auto* node : test::find_nodes(*joint.graph, "aten_recompute::convolution_backward"))
    reads_input.push_back(node->input(1)->debugName() == "h");
  EXPECT_THAT(reads_input, ElementsAre(true, false));
}

TEST_F(Rules, AConvolutionWithAFrozenWeightDoesNotCaptureItsInput) {
  const auto joint = differentiate(test::parse(R"(
graph(%x : Tensor, %w : Tensor, %b : Tensor):
  %one : int = prim::Constant[value=1]()
  %zeros : int[] = prim::Constant[value=[0, 0]]()
  %ones : int[] = prim::Constant[value=[1, 1]]()
  %h : Tensor = aten::neg(%x)
  %y : Tensor = aten::conv2d(%h, %w, %b, %ones, %zeros, %ones, %one)
  return (%y)
)"),
                                   {true, false, false}, {true});
  EXPECT_THAT(captured_values(joint), IsEmpty());
}

// ---- batch norm from its statistics ----

const char* const kBatchNorm = R"(
graph(%x : Tensor, %w : Tensor?, %b : Tensor?):
  %none : NoneType = prim::Constant()
  %training : bool = prim::Constant[value=1]()
  %momentum : float = prim::Constant[value=0.1]()
  %eps : float = prim::Constant[value=1e-05]()
  %y : Tensor, %m : Tensor, %s : Tensor, %r : Tensor, %i : int = aten::_batch_norm_impl_index(%x, %w, %b, %none, %none, %training, %momentum, %eps, %training)
  return (%y)
)";

TEST_F(Rules, BatchNormIsComputedAgainFromItsStatistics) {
  const auto graph = test::parse(kBatchNorm);
  const auto* replay = find_replay(graph->return_node()->input(0)->node());
  ASSERT_NE(replay, nullptr);
  EXPECT_THAT(replay->reads_outputs, ElementsAre(1, 2, 4));
  EXPECT_THAT(replay->gives_outputs, ElementsAre(0));
  EXPECT_THAT(replay->formula.parameters,
              ElementsAre("input", "weight", "bias", "eps", "cudnn_enabled", "result1", "result2",
                          "result4"));
  EXPECT_EQ(find_replay(graph->return_node()), nullptr);
}

TEST_F(Rules, EvaluationHasNoReplayFromStatistics) {
  std::string text = kBatchNorm;
  text.replace(text.find("value=1]"), 8, "value=0]");
  EXPECT_EQ(find_replay(test::parse(text)->return_node()->input(0)->node()), nullptr);
}

TEST_F(Rules, BatchNormFromStatisticsEqualsTheFirstRun) {
  const auto graph = test::parse(kBatchNorm);
  const auto& formula = find_replay(graph->return_node()->input(0)->node())->formula;
  const std::vector<at::Tensor> inputs = {
      at::randn({8, 37, 13, 11}),
      at::randn({8, 37, 13, 11}).contiguous(at::MemoryFormat::ChannelsLast),
      at::randn({8, 64, 16, 16}) * 3 + 5,
      at::randn({4, 5, 3, 6, 7}).contiguous(at::MemoryFormat::ChannelsLast3d),
      at::randn({33, 70}),
      at::randn({4, 19, 23}),
      at::randn({8, 13, 11, 37}).transpose(1, 3),
      at::randn({8, 37, 13, 22}).slice(3, 0, 22, 2),
  };
  struct Types {
    at::ScalarType input, parameters;
  };
  for (const auto [type, parameters] :
       {Types{at::kFloat, at::kFloat}, Types{at::kDouble, at::kDouble},
        Types{at::kBFloat16, at::kFloat}, Types{at::kBFloat16, at::kBFloat16},
        Types{at::kHalf, at::kFloat}, Types{at::kHalf, at::kHalf}}) {
    for (const auto& each : inputs) {
      const auto x = each.to(type);
      for (const bool affine : {true, false}) {
        const auto channels = x.size(1);
        c10::IValue weight;
        c10::IValue bias;
        if (affine) {
          auto w = at::randn({channels});
          w[0] = 0;
          weight = w.to(parameters);
          bias = at::randn({channels}).to(parameters);
        }
        const auto first = at::_batch_norm_impl_index(x, weight.toOptional<at::Tensor>(),
                                                      bias.toOptional<at::Tensor>(), {}, {},
                                                      /*training=*/true, 0.1, 1e-5, true);
        const auto again =
            test::run_graph(formula.graph, {x, weight, bias, 1e-5, true, std::get<1>(first),
                                            std::get<2>(first), std::get<4>(first)});
        EXPECT_TRUE(same_bits(again.at(0).toTensor(), std::get<0>(first)))
            << type << " " << parameters << " " << x.sizes() << x.strides();
      }
    }
  }
}

}  // namespace
}  // namespace aten_recompute
