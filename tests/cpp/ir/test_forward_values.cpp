#include "ir/forward_values.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_value;
using ::testing::ElementsAre;

class ForwardValuesTest : public test::TorchTest {};

JointGraph joint_with_branch() {
  return test::parse_joint(
      {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %b : bool, %dy : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h : Tensor = aten::relu(%x)
  %y : Tensor = aten::tanh(%h)
  aten_recompute::backward_start()
  %dh : Tensor = aten::mul(%dy, %y)
  %dx : Tensor = prim::If(%b)
    block0():
      %dt : Tensor = aten::threshold_backward(%dh, %h, %zero)
      -> (%dt)
    block1():
      -> (%x)
  return (%y, %dx)
)");
}

TEST_F(ForwardValuesTest, ComputedValuesInputsAndTheRestAreToldApart) {
  const auto joint = joint_with_branch();
  const ForwardValues forward(joint);
  auto value = [&](const char* name) { return find_value(*joint.graph, name); };
  EXPECT_TRUE(forward.is_computed(value("h")));
  EXPECT_FALSE(forward.is_computed(value("x")));
  EXPECT_FALSE(forward.is_computed(value("zero")));
  EXPECT_FALSE(forward.is_computed(value("dh")));
  EXPECT_TRUE(forward.is_region_input(value("x")));
  EXPECT_FALSE(forward.is_region_input(value("dy")));
  EXPECT_EQ(forward.num_outputs(), 1U);
}

TEST_F(ForwardValuesTest, ReadsIncludeNestedBlocksAndWhatTheyReturn) {
  const auto joint = joint_with_branch();
  const ForwardValues forward(joint);
  EXPECT_THAT(test::names(forward.read_by(find_value(*joint.graph, "dx")->node())),
              ElementsAre("b", "h", "zero", "x"));
}

TEST_F(ForwardValuesTest, AValueThatIsReadTwiceIsNamedOnce) {
  const auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %y : Tensor = aten::mul(%x, %x)
  aten_recompute::backward_start()
  %dx : Tensor = aten::addcmul(%dy, %y, %y, %dy)
  return (%y, %dx)
)");
  const ForwardValues forward(joint);
  EXPECT_THAT(test::names(forward.read_by(find_value(*joint.graph, "dx")->node())),
              ElementsAre("y"));
}

}  // namespace
}  // namespace aten_recompute
