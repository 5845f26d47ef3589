#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/autodiff.h>

#include "passes/partition/extract.h"
#include "passes/partition/splice.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::listing;
using ::testing::ElementsAre;

class Extract : public test::TorchTest {};

JointGraph joint_chain() {
  return test::parse_joint(
      {.num_inputs = 3, .num_outputs = 2, .vjp_outputs = {1}, .gradient_inputs = {2}}, R"(
graph(%n : int, %x : Tensor, %w : Tensor, %dy : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h : Tensor = aten::mm(%x, %w)
  %a : Tensor = aten::relu(%h)
  %y : Tensor = aten::sigmoid(%a)
  aten_recompute::backward_start()
  %da : Tensor = aten::sigmoid_backward(%dy, %y)
  %dh : Tensor = aten::threshold_backward(%da, %a, %zero)
  %xt : Tensor = aten::t(%x)
  %dw : Tensor = aten::mm(%xt, %dh)
  return (%n, %y, %dw)
)");
}

TEST_F(Extract, CapturesThatAreNoOutputsFollowTheOutputs) {
  const auto gradient = extract(joint_chain());
  gradient.f->lint();
  gradient.df->lint();
  EXPECT_THAT(listing(*gradient.f),
              ElementsAre("h = aten::mm(x, w)", "a = aten::relu(h)", "y = aten::sigmoid(a)"));
  EXPECT_EQ(gradient.f_real_outputs, 2U);
  EXPECT_THAT(test::names(gradient.f->outputs()), ElementsAre("n", "y", "a"));
  EXPECT_THAT(gradient.df_input_vjps, ElementsAre(1));
  EXPECT_THAT(gradient.df_input_captured_inputs, ElementsAre(1));
  // In the order in which df reads them: y, which is output 1, then a.
  EXPECT_THAT(gradient.df_input_captured_outputs, ElementsAre(1, 2));
  EXPECT_THAT(gradient.df_output_vjps, ElementsAre(2));
}

TEST_F(Extract, TheBackwardTakesVjpsThenInputsThenOutputs) {
  const auto gradient = extract(joint_chain());
  EXPECT_THAT(test::names(gradient.df->inputs()), ElementsAre("dy", "x", "y", "a"));
  EXPECT_THAT(listing(*gradient.df), ElementsAre("da = aten::sigmoid_backward(dy, y)",
                                                 "dh = aten::threshold_backward(da, a, 0)",
                                                 "xt = aten::t(x)", "dw = aten::mm(xt, dh)"));
  EXPECT_THAT(test::names(gradient.df->outputs()), ElementsAre("dw"));
}

TEST_F(Extract, RecomputedValuesAreNotCaptured) {
  auto joint = joint_chain();
  splice(joint, {});
  const auto gradient = extract(joint);
  EXPECT_THAT(test::names(gradient.f->outputs()), ElementsAre("n", "y"));
  EXPECT_THAT(gradient.df_input_captured_inputs, ElementsAre(1, 2));
  // y, output 1, is held by the caller in any case.
  EXPECT_THAT(gradient.df_input_captured_outputs, ElementsAre(1));
  EXPECT_THAT(test::names(gradient.df->inputs()), ElementsAre("dy", "x", "w", "y"));
}

TEST_F(Extract, ForwardAndBackwardTogetherComputeWhatTheJointGraphDoes) {
  const auto joint = joint_chain();
  const auto gradient = extract(joint);
  const at::NoGradGuard guard;
  const auto x = at::randn({3, 2});
  const auto w = at::randn({2, 4});
  const auto dy = at::randn({3, 4});
  const auto expected = test::run_graph(joint.graph, {7, x, w, dy});
  const auto forward = test::run_graph(gradient.f, {7, x, w});
  const auto backward = test::run_graph(gradient.df, {dy, x, forward[1], forward[2]});
  EXPECT_EQ(forward[0].toInt(), 7);
  EXPECT_TRUE(test::bitwise_equal(forward[1].toTensor(), expected[1].toTensor()));
  EXPECT_TRUE(test::bitwise_equal(backward[0].toTensor(), expected[2].toTensor()));
}

TEST_F(Extract, AGradientThatTheForwardComputedIsCaptured) {
  const auto gradient = extract(test::parse_joint(
      {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0, 1}}, R"(
graph(%x : Tensor, %w : Tensor, %dy : Tensor):
  %a : Tensor = aten::sin(%x)
  %y : Tensor = aten::mul(%w, %a)
  aten_recompute::backward_start()
  return (%y, %a, %dy)
)"));
  EXPECT_THAT(test::names(gradient.df->inputs()), ElementsAre("dy", "a"));
  EXPECT_THAT(test::names(gradient.df->outputs()), ElementsAre("a", "dy"));
  EXPECT_THAT(gradient.df_input_captured_outputs, ElementsAre(1));
  EXPECT_THAT(gradient.df_output_vjps, ElementsAre(0, 1));
}

TEST_F(Extract, ACopyThatIsNotKeptIsNotMade) {
  const auto gradient = extract(test::parse_joint(
      {.num_inputs = 3, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %a : Tensor, %b : Tensor, %dy : Tensor):
  %s : Tensor = aten_recompute::snapshot(%a)
  %t : Tensor = aten_recompute::snapshot(%b)
  %z : Tensor = aten::mul(%x, %s)
  %y : Tensor = aten::mul(%z, %t)
  aten_recompute::backward_start()
  %dx : Tensor = aten::mul(%dy, %t)
  return (%y, %dx)
)"));
  EXPECT_THAT(listing(*gradient.f), ElementsAre("t = aten_recompute::snapshot(b)",
                                                "z = aten::mul(x, a)", "y = aten::mul(z, t)"));
}

TEST_F(Extract, TheJointGraphIsNotChanged) {
  const auto joint = joint_chain();
  const auto before = joint.graph->toString();
  extract(joint);
  EXPECT_EQ(joint.graph->toString(), before);
}

}  // namespace
}  // namespace aten_recompute
