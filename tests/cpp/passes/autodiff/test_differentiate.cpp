#include "passes/autodiff/differentiate.h"

#include <ATen/Functions.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::backward_listing;
using test::find_nodes;
using test::forward_listing;
using test::parse;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Differentiate : public test::TorchTest {};

// Returns outputs and gradients of the joint graph. Every vjp is a tensor of ones.
std::vector<at::Tensor> run_joint(const JointGraph& joint, const std::vector<at::Tensor>& inputs) {
  const at::NoGradGuard guard;
  std::vector<c10::IValue> arguments(inputs.begin(), inputs.end());
  for (size_t k = 0; k < joint.vjp_outputs.size(); ++k) {
    arguments.emplace_back(at::ones({}).expand({2, 2}).contiguous());
  }
  std::vector<at::Tensor> results;
  for (auto& value : test::run_graph(joint.graph, std::move(arguments))) {
    results.push_back(value.toTensor());
  }
  return results;
}

// square() has no rule, so it is always on tape.
constexpr const char* kSquares = R"(
graph(%x : Tensor, %w : Tensor):
  %a : Tensor = aten_recompute_test::square(%x)
  %b : Tensor = aten::mul(%a, %w)
  %y : Tensor = aten_recompute_test::square(%b)
  return (%y)
)";

TEST_F(Differentiate, GradientsAreThoseOfEager) {
  const auto joint = differentiate(parse(kSquares), {true, true}, {true});
  joint.graph->lint();
  const auto x = at::randn({2, 2}).requires_grad_();
  const auto w = at::randn({2, 2}).requires_grad_();
  const auto y = (x * x * w) * (x * x * w);
  const auto expected = torch::autograd::grad({y}, {x, w}, {at::ones({2, 2})});
  const auto results = run_joint(joint, {x, w});
  ASSERT_THAT(results, SizeIs(3));
  EXPECT_TRUE(test::bitwise_equal(results[0], y));
  EXPECT_TRUE(at::allclose(results[1], expected[0]));
  EXPECT_TRUE(at::allclose(results[2], expected[1]));
}

TEST_F(Differentiate, IndicesNameOutputsAndInputs) {
  const auto joint = differentiate(parse(kSquares), {true, true}, {true});
  EXPECT_EQ(joint.num_inputs, 2U);
  EXPECT_EQ(joint.num_outputs, 1U);
  EXPECT_THAT(joint.vjp_outputs, ElementsAre(0));
  EXPECT_THAT(joint.gradient_inputs, ElementsAre(0, 1));
  EXPECT_THAT(joint.output_requires_grad, ElementsAre(true));
  EXPECT_EQ(joint.graph->inputs().size(), 3U);
  EXPECT_EQ(joint.graph->outputs().size(), 3U);
  EXPECT_EQ(joint.backward_start->kind(), symbols::kBackwardStart);
}

TEST_F(Differentiate, OnlyInputsThatRequireGradGetAGradient) {
  const auto joint = differentiate(parse(kSquares), {false, true}, {true});
  EXPECT_THAT(joint.gradient_inputs, ElementsAre(1));
  // The first square then needs no tape, because nothing before it requires grad.
  EXPECT_THAT(forward_listing(joint), Contains("a = aten_recompute_test::square(x)"));
  EXPECT_EQ(joint.operators.on_tape.size(),
            differentiate(parse(kSquares), {true, true}, {true}).operators.on_tape.size() - 1);
}

TEST_F(Differentiate, TheGivenGraphIsNotChanged) {
  const auto graph = parse(kSquares);
  const auto before = graph->toString();
  differentiate(graph, {true, true}, {true});
  EXPECT_EQ(graph->toString(), before);
}

// LibTorch renames the earlier of two values of one name: "tape.1" is created before "tape".
TEST_F(Differentiate, OperatorsOnTapeAreNamedAndCounted) {
  const auto joint = differentiate(parse(R"(
graph(%x : Tensor):
  %a : Tensor = aten_recompute_test::square(%x)
  %b : Tensor, %c : Tensor = aten_recompute_test::pair(%a)
  return (%b, %c)
)"),
                                   {true}, {true, true});
  EXPECT_THAT(joint.operators.on_tape,
              ElementsAre("aten_recompute_test::square", "aten_recompute_test::pair"));
  EXPECT_THAT(forward_listing(joint), ElementsAre("a, tape.1 = aten_recompute::tape_forward(x)",
                                                  "b, c, tape = aten_recompute::tape_forward(a)"));
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("$0 = aten_recompute::tape_backward(tape, grad_0, grad_1)",
                          "$1 = aten_recompute::tape_backward(tape.1, $0)"));
}

// A list only forwards gradients, and no gradient passes through a comparison.
TEST_F(Differentiate, OperatorsAreCountedByWhereTheirGradientComesFrom) {
  const auto joint = differentiate(parse(R"(
graph(%x : Tensor, %n : Tensor):
  %zero : int = prim::Constant[value=0]()
  %m : Tensor = aten::neg(%n)
  %a : Tensor = aten::relu(%x)
  %list : Tensor[] = prim::ListConstruct(%a, %m, %a)
  %b : Tensor = aten::cat(%list, %zero)
  %c : Tensor = aten_recompute_test::square(%b)
  %d : Tensor = aten::relu(%c)
  %e : Tensor = aten::gt(%d, %zero)
  return (%d, %e)
)"),
                                   {true, false}, {true, true});
  EXPECT_THAT(joint.operators.by_rule, ElementsAre("aten::relu", "aten::cat", "aten::relu"));
  EXPECT_THAT(joint.operators.by_user_rule, IsEmpty());
  EXPECT_THAT(joint.operators.on_tape, ElementsAre("aten_recompute_test::square"));
}

const char* const kInstanceNorm = R"(
graph(%x : Tensor, %given : bool):
  %none : NoneType = prim::Constant()
  %statistics : bool = prim::Constant[value=1]()
  %momentum : float = prim::Constant[value=0.1]()
  %eps : float = prim::Constant[value=1e-05]()
  %y : Tensor = aten::instance_norm(%x, %none, %none, %none, %none, %statistics, %momentum, %eps, %statistics)
  return (%y)
)";

TEST_F(Differentiate, AComposedOperatorIsReplacedByItsPartsAndCountsAsOne) {
  const auto joint = differentiate(parse(kInstanceNorm), {true, false}, {true});
  EXPECT_THAT(joint.operators.by_rule, ElementsAre("aten::instance_norm"));
  EXPECT_THAT(joint.operators.on_tape, IsEmpty());
  EXPECT_THAT(forward_listing(joint), Contains(HasSubstr("aten_recompute::instance_norm")));
  EXPECT_THAT(forward_listing(joint), Contains(HasSubstr("aten::view(")));
}

TEST_F(Differentiate, AComposedOperatorIsOnTapeIfNoConstantDecidesItsParts) {
  std::string text = kInstanceNorm;
  text.replace(text.find("%none, %statistics"), 18, "%none, %given");
  const auto joint = differentiate(parse(text), {true, false}, {true});
  EXPECT_THAT(joint.operators.by_rule, IsEmpty());
  EXPECT_THAT(joint.operators.on_tape, ElementsAre("aten::instance_norm"));
}

TEST_F(Differentiate, AnOutputWithoutAGradientIsNoneForTheTape) {
  const auto graph = parse(R"(
graph(%x : Tensor):
  %b : Tensor, %c : Tensor = aten_recompute_test::pair(%x)
  return (%b, %c)
)");
  const auto joint = differentiate(graph, {true}, {false, true});
  EXPECT_THAT(joint.vjp_outputs, ElementsAre(1));
  EXPECT_THAT(joint.output_requires_grad, ElementsAre(true, true));
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("$0 = aten_recompute::tape_backward(tape, None, grad_1)"));
  const auto results = run_joint(joint, {at::randn({2, 2})});
  EXPECT_TRUE(test::bitwise_equal(results[2], at::full({2, 2}, 3.0)));
}

// The n-th forward node is the same for every mask.
TEST_F(Differentiate, TheForwardDoesNotDependOnTheMask) {
  const std::string ir = R"(
graph(%x : Tensor, %w : Tensor):
  %a : Tensor = aten_recompute_test::square(%x)
  %b : Tensor = aten::mul(%a, %w)
  %c : Tensor = aten::relu(%a)
  return (%b, %c)
)";
  const auto all = differentiate(parse(ir), {true, true}, {true, true});
  const auto first = differentiate(parse(ir), {true, true}, {true, false});
  const auto second = differentiate(parse(ir), {true, true}, {false, true});
  EXPECT_THAT(all.vjp_outputs, ElementsAre(0, 1));
  EXPECT_THAT(first.vjp_outputs, ElementsAre(0));
  EXPECT_THAT(second.vjp_outputs, ElementsAre(1));
  // w contributes to output 0 only.
  EXPECT_THAT(all.gradient_inputs, ElementsAre(0, 1));
  EXPECT_THAT(first.gradient_inputs, ElementsAre(0, 1));
  EXPECT_THAT(second.gradient_inputs, ElementsAre(0));
}

TEST_F(Differentiate, WithoutAGradientThereIsNoBackward) {
  const auto joint = differentiate(parse(kSquares), {true, true}, {false});
  EXPECT_THAT(joint.vjp_outputs, IsEmpty());
  EXPECT_THAT(joint.gradient_inputs, IsEmpty());
  EXPECT_THAT(backward_listing(joint), IsEmpty());
  EXPECT_THAT(joint.output_requires_grad, ElementsAre(true));
}

// Eager's engine runs the newest node first, so the gradient of the last use is the left operand.
TEST_F(Differentiate, GradientsAreAddedFromTheLastUseToTheFirst) {
  const auto joint = differentiate(parse(R"(
graph(%x : Tensor):
  %a : Tensor = aten_recompute_test::square(%x)
  %b : Tensor = aten_recompute_test::square(%x)
  %c : Tensor = aten_recompute_test::square(%x)
  return (%a, %b, %c)
)"),
                                   {true}, {true, true, true});
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("$0 = aten_recompute::tape_backward(tape, grad_2)",
                          "$1 = aten_recompute::tape_backward(tape.3, grad_1)",
                          "$2 = aten_recompute::accumulate($0, $1)",
                          "$3 = aten_recompute::tape_backward(tape.1, grad_0)",
                          "$4 = aten_recompute::accumulate($2, $3)"));
}

TEST_F(Differentiate, AnOutputThatIsReadAgainAddsItsOwnGradientFirst) {
  const auto joint = differentiate(parse(R"(
graph(%x : Tensor):
  %a : Tensor = aten_recompute_test::square(%x)
  %b : Tensor = aten_recompute_test::square(%a)
  return (%a, %b)
)"),
                                   {true}, {true, true});
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("$0 = aten_recompute::tape_backward(tape, grad_1)",
                          "$1 = aten_recompute::accumulate(grad_0, $0)",
                          "$2 = aten_recompute::tape_backward(tape.1, $1)"));
}

TEST_F(Differentiate, NonDifferentiableOutputsRequireNoGradient) {
  const auto joint = differentiate(parse(R"(
graph(%x : Tensor):
  %dim : int = prim::Constant[value=0]()
  %a : Tensor = aten_recompute_test::square(%x)
  %n : int = aten::size(%a, %dim)
  %d : Tensor = aten::detach(%a)
  return (%a, %n, %d)
)"),
                                   {true}, {true, true, true});
  EXPECT_THAT(joint.output_requires_grad, ElementsAre(true, false, false));
  EXPECT_THAT(joint.vjp_outputs, ElementsAre(0));
}

TEST_F(Differentiate, ListsCarryOneGradientPerElement) {
  const auto joint = differentiate(parse(R"(
graph(%x : Tensor, %y : Tensor):
  %dim : int = prim::Constant[value=0]()
  %list : Tensor[] = prim::ListConstruct(%x, %y)
  %c : Tensor = aten::cat(%list, %dim)
  %z : Tensor = aten_recompute_test::square(%c)
  return (%z)
)"),
                                   {true, true}, {true});
  joint.graph->lint();
  EXPECT_THAT(joint.gradient_inputs, ElementsAre(0, 1));
  const at::NoGradGuard guard;
  const auto x = at::randn({2, 2});
  const auto y = at::randn({1, 2});
  const auto results = test::run_graph(joint.graph, {x, y, at::ones({3, 2})});
  EXPECT_TRUE(test::bitwise_equal(results[1].toTensor(), x * 2));
  EXPECT_TRUE(test::bitwise_equal(results[2].toTensor(), y * 2));
}

// torch.nn.functional's losses broadcast targets, which usually require no gradient.
TEST_F(Differentiate, OnlyBroadcastTensorsThatRequireGradGetAGradient) {
  const auto graph = parse(R"(
graph(%x : Tensor, %t : Tensor):
  %both : Tensor[] = prim::ListConstruct(%x, %t)
  %wide : Tensor[] = aten::broadcast_tensors(%both)
  %a : Tensor, %b : Tensor = prim::ListUnpack(%wide)
  %y : Tensor = aten::mul(%a, %b)
  return (%y)
)");
  const auto one = differentiate(graph, {true, false}, {true});
  EXPECT_THAT(find_nodes(*one.graph, "aten::mul"), SizeIs(2));
  const auto both = differentiate(graph, {true, true}, {true});
  EXPECT_THAT(find_nodes(*both.graph, "aten::mul"), SizeIs(3));
  const auto x = at::randn({2}), t = at::randn({2, 2});
  const auto results = run_joint(both, {x, t});
  ASSERT_THAT(results, SizeIs(3));
  EXPECT_TRUE(test::bitwise_equal(results[1], t.sum(0)));
  EXPECT_TRUE(test::bitwise_equal(results[2], x.expand({2, 2}).contiguous()));
}

TEST_F(Differentiate, AnInputThatIsAnOutputGetsTheOutputsGradient) {
  const auto joint = differentiate(parse(R"(
graph(%x : Tensor):
  %y : Tensor = aten_recompute_test::square(%x)
  return (%x, %y)
)"),
                                   {true}, {true, false});
  EXPECT_THAT(joint.gradient_inputs, ElementsAre(0));
  EXPECT_EQ(joint.graph->outputs()[2]->debugName(), "grad_0");
  EXPECT_THAT(backward_listing(joint), IsEmpty());
}

}  // namespace
}  // namespace aten_recompute
