#include "passes/schedule.h"

#include <torch/csrc/jit/ir/ir.h>

#include "passes/splice.h"
#include "passes/symbols.h"
#include "tests/cpp/testing.h"

namespace aten_recompute {
namespace {

using test::backward_listing;
using ::testing::ElementsAre;

class Schedule : public test::TorchTest {};

// Two layers  h = mm(x, w), a = relu(h);  y = tanh of the second.
constexpr const char* kTwoLayers = R"(
graph(%x : Tensor, %w1 : Tensor, %w2 : Tensor, %dy : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h1 : Tensor = aten::mm(%x, %w1)
  %a1 : Tensor = aten::relu(%h1)
  %h2 : Tensor = aten::mm(%a1, %w2)
  %y : Tensor = aten::tanh(%h2)
  aten_recompute::backward_start()
  %dh2 : Tensor = aten::tanh_backward(%dy, %y)
  %a1t : Tensor = aten::t(%a1)
  %dw2 : Tensor = aten::mm(%a1t, %dh2)
  %w2t : Tensor = aten::t(%w2)
  %da1 : Tensor = aten::mm(%dh2, %w2t)
  %dh1 : Tensor = aten::threshold_backward(%da1, %a1, %zero)
  %xt : Tensor = aten::t(%x)
  %dw1 : Tensor = aten::mm(%xt, %dh1)
  return (%y, %dw1, %dw2)
)";

JointGraph two_layers(const std::vector<std::string>& saved) {
  auto joint = test::parse_joint(kTwoLayers, 3, 1, {0}, {1, 2});
  splice(joint, test::plan_of(joint, saved));
  return joint;
}

TEST_F(Schedule, WhatIsRecomputedStandsJustBeforeItsFirstUse) {
  auto joint = two_layers({"y"});
  schedule(joint);
  joint.graph->lint();
  EXPECT_THAT(
      backward_listing(joint),
      ElementsAre("dh2 = aten::tanh_backward(dy, y)", "h1_recomputed = aten::mm(x, w1)",
                  "a1_recomputed = aten::relu(h1_recomputed)", "a1t = aten::t(a1_recomputed)",
                  "dw2 = aten::mm(a1t, dh2)", "w2t = aten::t(w2)", "da1 = aten::mm(dh2, w2t)",
                  "dh1 = aten::threshold_backward(da1, a1_recomputed, 0)", "xt = aten::t(x)",
                  "dw1 = aten::mm(xt, dh1)"));
}

TEST_F(Schedule, WhatTheFirstNodeNeedsStandsFirst) {
  auto joint = two_layers({"a1"});
  schedule(joint);
  const auto lines = backward_listing(joint);
  EXPECT_THAT(
      std::vector<std::string>(lines.begin(), lines.begin() + 3),
      ElementsAre("h2_recomputed = aten::mm(a1, w2)", "y_recomputed = aten::tanh(h2_recomputed)",
                  "dh2 = aten::tanh_backward(dy, y_recomputed)"));
}

// Of three chains each waits for the node that reads it.
TEST_F(Schedule, SeparateValuesWaitSeparately) {
  auto joint = test::parse_joint(R"(
graph(%x : Tensor, %dy : Tensor):
  %a : Tensor = aten::sin(%x)
  %b : Tensor = aten::exp(%x)
  %c : Tensor = aten::cos(%x)
  %ab : Tensor = aten::mul(%a, %b)
  %y : Tensor = aten::mul(%ab, %c)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::mul(%dy, %c)
  %d2 : Tensor = aten::mul(%d1, %b)
  %d3 : Tensor = aten::mul(%d2, %a)
  return (%y, %d3)
)",
                                 1, 1, {0}, {0});
  splice(joint, {});
  schedule(joint);
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("c_recomputed = aten::cos(x)", "d1 = aten::mul(dy, c_recomputed)",
                          "b_recomputed = aten::exp(x)", "d2 = aten::mul(d1, b_recomputed)",
                          "a_recomputed = aten::sin(x)", "d3 = aten::mul(d2, a_recomputed)"));
}

TEST_F(Schedule, AUseInsideOfControlFlowCountsAsItsNode) {
  auto joint = test::parse_joint(R"(
graph(%x : Tensor, %flag : bool, %dy : Tensor):
  %a : Tensor = aten::sin(%x)
  %y : Tensor = aten::mul(%a, %a)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::neg(%dy)
  %d2 : Tensor = prim::If(%flag)
    block0():
      %inner : Tensor = aten::mul(%d1, %a)
      -> (%inner)
    block1():
      -> (%d1)
  return (%y, %d2)
)",
                                 2, 1, {0}, {0});
  splice(joint, {});
  schedule(joint);
  joint.graph->lint();
  EXPECT_THAT(
      backward_listing(joint),
      ElementsAre("d1 = aten::neg(dy)", "a_recomputed = aten::sin(x)", "d2 = prim::If(flag)"));
}

TEST_F(Schedule, AGradientThatIsRecomputedStandsLast) {
  auto joint = test::parse_joint(R"(
graph(%x : Tensor, %w : Tensor, %dy : Tensor):
  %a : Tensor = aten::sin(%x)
  %y : Tensor = aten::mul(%w, %a)
  aten_recompute::backward_start()
  %dx : Tensor = aten::mul(%dy, %w)
  return (%y, %dx, %a)
)",
                                 2, 1, {0}, {0, 1});
  splice(joint, {});
  schedule(joint);
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("dx = aten::mul(dy, w)", "a_recomputed = aten::sin(x)"));
  EXPECT_EQ(joint.graph->outputs()[2]->debugName(), "a_recomputed");
}

TEST_F(Schedule, NodesOfTheBackwardProperKeepTheirPlaces) {
  auto joint = two_layers({"h1", "a1", "h2", "y"});
  const auto before = joint.graph->toString();
  schedule(joint);
  EXPECT_EQ(joint.graph->toString(), before);
}

}  // namespace
}  // namespace aten_recompute
