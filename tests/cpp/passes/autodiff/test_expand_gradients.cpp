#include "passes/autodiff/expand_gradients.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/autodiff/differentiate.h"
#include "passes/autodiff/inner_backward.h"
#include "tests/cpp/support/inner_gradient.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_nodes;
using test::listing;
using test::parse;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using torch::jit::Graph;

class ExpandGradients : public test::TorchTest {
 protected:
  // Returns the energy sum(tanh(x * w)) and its gradient for x.
  static std::shared_ptr<Graph> energy_and_gradient(bool create_graph, bool retain_graph) {
    auto graph = parse(R"(
graph(%x : Tensor, %w : Tensor):
  %none : NoneType = prim::Constant()
  %p : Tensor = aten::mul(%x, %w)
  %h : Tensor = aten::tanh(%p)
  %e : Tensor = aten::sum(%h, %none)
  return (%e)
)");
    graph->registerOutput(test::append_gradient(*graph, create_graph, retain_graph));
    return graph;
  }
};

TEST_F(ExpandGradients, OperatorsTakeThePlaceOfTheGradient) {
  const auto graph = energy_and_gradient(true, true);
  const auto expanded = expand_gradients(graph, {true, true});
  expanded->lint();
  EXPECT_THAT(find_nodes(*expanded, "aten_recompute::gradient"), IsEmpty());
  EXPECT_THAT(find_nodes(*graph, "aten_recompute::gradient"), SizeIs(1));  // is not changed
  EXPECT_THAT(listing(*expanded), Contains(HasSubstr("aten::tanh_backward")));
  const auto x = at::randn({3}).requires_grad_();
  const auto w = at::randn({3}).requires_grad_();
  const auto energy = (x * w).tanh().sum();
  const auto expected = torch::autograd::grad({energy}, {x});
  const auto results = test::run_graph(expanded, {x.detach(), w.detach()});
  EXPECT_TRUE(test::bitwise_equal(results[0].toTensor(), energy.detach()));
  EXPECT_TRUE(test::bitwise_equal(results[1].toTensor(), expected[0]));
}

TEST_F(ExpandGradients, AGraphWithoutGradientsIsReturnedAsItIs) {
  const auto graph = parse(R"(
graph(%x : Tensor):
  %y : Tensor = aten::tanh(%x)
  return (%y)
)");
  EXPECT_EQ(expand_gradients(graph, {true}), graph);
}

TEST_F(ExpandGradients, TheGradientHasGradientsWhereItCreatesAGraph) {
  const auto joint = differentiate(expand_gradients(energy_and_gradient(true, true), {true, true}),
                                   {true, true}, {true, true});
  EXPECT_THAT(joint.vjp_outputs, SizeIs(2));
  EXPECT_THAT(joint.freed, IsEmpty());
  EXPECT_THAT(joint.operators.on_tape, IsEmpty());
}

TEST_F(ExpandGradients, AGradientWithoutGraphIsAConstantOfTheBackward) {
  const auto joint = differentiate(expand_gradients(energy_and_gradient(false, true), {true, true}),
                                   {true, true}, {true, true});
  EXPECT_EQ(joint.vjp_outputs, std::vector<size_t>{0});
  EXPECT_THAT(joint.freed, IsEmpty());
}

TEST_F(ExpandGradients, AGraphThatIsNotRetainedIsFreed) {
  auto joint = differentiate(expand_gradients(energy_and_gradient(false, false), {true, true}),
                             {true, true}, {true, true});
  EXPECT_THAT(joint.vjp_outputs, IsEmpty());
  ASSERT_EQ(joint.freed.size(), 1);
  EXPECT_EQ(joint.freed[0].output, 0);
  EXPECT_EQ(joint.freed[0].inputs, (std::vector<size_t>{0, 1}));
  EXPECT_THAT(joint.backward_nodes(), IsEmpty());
  begin_inner_backward(joint, false);  // the gradient is what values are kept for
  EXPECT_THAT(joint.backward_nodes(), Not(IsEmpty()));
  EXPECT_TRUE(joint.has_inner_backward);
  end_inner_backward(joint);
  EXPECT_THAT(joint.backward_nodes(), IsEmpty());
}

TEST_F(ExpandGradients, ATargetThatRequiresNoGradIsRefused) {
  EXPECT_THROW(expand_gradients(energy_and_gradient(true, true), {false, true}), NotDifferentiable);
}

}  // namespace
}  // namespace aten_recompute
