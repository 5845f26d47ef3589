#include "ir/save_plan.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_value;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SavePlanTest : public test::TorchTest {};

// The backward reads t, a view of h, the size n, y and the input x.
JointGraph joint_with_a_view() {
  return test::parse_joint(
      {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %w : Tensor, %dy : Tensor):
  %unread : Tensor = aten::neg(%x)
  %h : Tensor = aten::mm(%x, %w)
  %n : int[] = aten::size(%h)
  %t : Tensor = aten::t(%h)
  %y : Tensor = aten::mm(%x, %t)
  aten_recompute::backward_start()
  %a : Tensor = aten::mm(%dy, %y)
  %b : Tensor = aten::mm(%a, %t)
  %c : Tensor = aten::view(%b, %n)
  %dx : Tensor = aten::mul(%c, %x)
  return (%y, %dx)
)");
}

TEST_F(SavePlanTest, CapturedAreTheTensorsThatTheBackwardReadsInForwardOrder) {
  const auto joint = joint_with_a_view();
  std::vector<const torch::jit::Value*> captured;
  for (const auto* value : captured_values(joint))
    captured.push_back(value);
  EXPECT_THAT(test::names(captured), ElementsAre("t", "y"));
}

TEST_F(SavePlanTest, SavingEverythingSavesTheTensorInPlaceOfItsView) {
  const auto joint = joint_with_a_view();
  EXPECT_THAT(test::saved_names(joint, save_everything(joint)), ElementsAre("h", "y"));
}

TEST_F(SavePlanTest, AViewOfARegionInputNeedsNotBeSaved) {
  const auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %t : Tensor = aten::t(%x)
  %y : Tensor = aten::neg(%t)
  aten_recompute::backward_start()
  %dx : Tensor = aten::mm(%dy, %t)
  return (%y, %dx)
)");
  EXPECT_THAT(captured_values(joint), ElementsAre(find_value(*joint.graph, "t")));
  EXPECT_THAT(save_everything(joint).saved, IsEmpty());
}

TEST_F(SavePlanTest, ATapeIsCaptured) {
  const auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %y : Tensor, %tape : Any = aten_recompute::tape_forward(%x)
  aten_recompute::backward_start()
  %dx : Tensor = aten_recompute::tape_backward(%tape, %dy)
  return (%y, %dx)
)");
  EXPECT_THAT(test::saved_names(joint, save_everything(joint)), ElementsAre("tape"));
}

}  // namespace
}  // namespace aten_recompute
