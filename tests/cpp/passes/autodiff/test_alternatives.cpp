#include "passes/autodiff/alternatives.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_value;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::Node;

class Alternatives : public test::TorchTest {};

std::vector<Node*> marked(const JointGraph& joint, c10::Symbol attribute) {
  std::vector<Node*> nodes;
  for (auto* node : joint.graph->nodes()) {
    if (node->hasAttribute(attribute))
      nodes.push_back(node);
  }
  return nodes;
}

JointGraph relu(const std::string& threshold) {
  auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %limit : int = prim::Constant[value=)" + threshold +
                                                                                           R"(]()
  %y : Tensor = aten::relu(%x)
  aten_recompute::backward_start()
  %dx : Tensor = aten::threshold_backward(%dy, %y, %limit)
  return (%y, %dx)
)");
  find_value(*joint.graph, "y")->node()->i_(symbols::kLayer, 2);
  add_alternatives(joint);
  joint.graph->lint();
  return joint;
}

TEST_F(Alternatives, TheGradientOfAReluMayReadSignsAsBits) {
  const auto joint = relu("0");
  EXPECT_THAT(test::forward_listing(joint),
              ElementsAre("y = aten::relu(x)", "y_sign = aten_recompute::positive_bits(y)",
                          "$0 = aten::stride(y)"));
  const auto optional = marked(joint, symbols::kOptional);
  ASSERT_THAT(optional, SizeIs(1));
  EXPECT_EQ(optional[0]->i(symbols::kLayer), 2) << "it belongs to the layer of the relu";
  const auto alternatives = marked(joint, symbols::kAlternativeTo);
  ASSERT_THAT(alternatives, SizeIs(1));
  auto* dx = find_value(*joint.graph, "dx");
  EXPECT_EQ(alternatives[0]->i(symbols::kAlternativeTo), static_cast<int64_t>(dx->unique()));
  EXPECT_THAT(alternatives[0]->is(symbols::kGives), ElementsAre(0));
  EXPECT_EQ(dx->node()->next(), alternatives[0]);
}

TEST_F(Alternatives, AnotherThresholdHasNoSigns) {
  const auto joint = relu("1");
  EXPECT_THAT(marked(joint, symbols::kAlternativeTo), IsEmpty());
  EXPECT_THAT(test::forward_listing(joint), ElementsAre("y = aten::relu(x)"));
}

TEST_F(Alternatives, AMaskOfADropoutMayBeKeptAsBits) {
  auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %p : float, %dy : Tensor):
  %mask : Tensor = aten_recompute::dropout_mask(%x, %p)
  %y : Tensor = aten_recompute::apply_dropout_mask(%x, %mask, %p)
  aten_recompute::backward_start()
  %dx : Tensor = aten_recompute::apply_dropout_mask(%dy, %mask, %p)
  return (%y, %dx)
)");
  add_alternatives(joint);
  joint.graph->lint();
  EXPECT_THAT(
      test::forward_listing(joint),
      ElementsAre("mask = aten_recompute::dropout_mask(x, p)",
                  "mask_bits = aten_recompute::pack_bits(mask)", "$0 = aten::size(mask)",
                  "$1 = aten::stride(mask)", "$2 = aten_recompute::unpack_bits(mask_bits, $0, $1)",
                  "y = aten_recompute::apply_dropout_mask(x, mask, p)"));
  const auto alternatives = marked(joint, symbols::kAlternativeTo);
  ASSERT_THAT(alternatives, SizeIs(1));
  EXPECT_EQ(alternatives[0]->kind().toQualString(), std::string("aten_recompute::unpack_bits"));
  EXPECT_THAT(marked(joint, symbols::kOptional), SizeIs(1));
}

TEST_F(Alternatives, OtherOperatorsHaveNone) {
  auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %y : Tensor = aten::tanh(%x)
  aten_recompute::backward_start()
  %dx : Tensor = aten::tanh_backward(%dy, %y)
  return (%y, %dx)
)");
  const auto before = joint.graph->toString();
  add_alternatives(joint);
  EXPECT_EQ(joint.graph->toString(), before);
}

}  // namespace
}  // namespace aten_recompute
