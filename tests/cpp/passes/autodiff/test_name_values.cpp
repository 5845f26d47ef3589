#include "passes/autodiff/name_values.h"

#include <torch/csrc/jit/ir/ir.h>

#include "passes/autodiff/differentiate.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::backward_listing;
using test::forward_listing;
using ::testing::ElementsAre;

class NameValues : public test::TorchTest {};

TEST_F(NameValues, OperatorsAreCountedByName) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor, %w : Tensor):
  %1 : Tensor = aten::mm(%x, %w)
  %2 : Tensor = aten::relu(%1)
  %3 : Tensor = aten::mm(%2, %w)
  %4 : Tensor = aten::relu(%3)
  return (%4)
)");
  name_values(joint);
  joint.graph->lint();
  EXPECT_THAT(forward_listing(joint),
              ElementsAre("mm_0 = aten::mm(x, w)", "relu_0 = aten::relu(mm_0)",
                          "mm_1 = aten::mm(relu_0, w)", "relu_1 = aten::relu(mm_1)"));
}

TEST_F(NameValues, TheSourceNameIsAppendedWithoutItsNumber) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor, %w : Tensor):
  %q : Tensor = aten::mm(%x, %w)
  %k.7 : Tensor = aten::mm(%q, %w)
  return (%k.7)
)");
  name_values(joint);
  EXPECT_THAT(forward_listing(joint),
              ElementsAre("mm_0_q = aten::mm(x, w)", "mm_1_k = aten::mm(mm_0_q, w)"));
}

TEST_F(NameValues, OutputsOfOneNodeShareItsNumber) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %a : Tensor, %b : Tensor = aten_recompute_test::pair(%x)
  %c : Tensor, %d : Tensor = aten_recompute_test::pair(%b)
  return (%c)
)");
  name_values(joint);
  EXPECT_THAT(forward_listing(joint),
              ElementsAre("pair_0_a, pair_0_b = aten_recompute_test::pair(x)",
                          "pair_1_c, pair_1_d = aten_recompute_test::pair(pair_0_b)"));
}

TEST_F(NameValues, AnOperatorOnTapeHasItsOwnName) {
  const auto joint = differentiate(test::parse(R"(
graph(%x : Tensor):
  %1 : Tensor = aten_recompute_test::square(%x)
  %y : Tensor = aten_recompute_test::square(%1)
  return (%y)
)"),
                                   {true}, {true});
  name_values(joint);
  EXPECT_THAT(forward_listing(joint),
              ElementsAre("square_0, square_0_tape = aten_recompute::tape_forward(x)",
                          "square_1_y, square_1_tape = aten_recompute::tape_forward(square_0)"));
}

TEST_F(NameValues, InputsConstantsAndTheBackwardKeepTheirNames) {
  const auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %zero : int = prim::Constant[value=0]()
  %y : Tensor = aten::relu(%x)
  aten_recompute::backward_start()
  %dx : Tensor = aten::threshold_backward(%dy, %y, %zero)
  return (%y, %dx)
)");
  name_values(joint);
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("dx = aten::threshold_backward(dy, relu_0_y, 0)"));
  EXPECT_EQ(test::find_value(*joint.graph, "zero")->node()->kind(), c10::prim::Constant);
  EXPECT_THAT(test::names(joint.graph->inputs()), ElementsAre("x", "dy"));
}

}  // namespace
}  // namespace aten_recompute
