#include "passes/partition/undefined_gradients.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "runtime/program.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

class UndefinedGradients : public test::TorchTest {};

// A backward with one vjp, %g. std_mean stands for a tape with two results.
std::shared_ptr<torch::jit::Graph> backward_with(const std::string& body) {
  auto graph = test::parse("graph(%g : Tensor, %w : Tensor, %tape : Tensor):\n" + body);
  auto* tape = graph->create(symbols::kTapeBackward, {graph->inputs()[2], graph->inputs()[0]}, 2);
  auto* stand_in = test::find_nodes(*graph, "aten::std_mean").at(0);
  tape->insertBefore(stand_in);
  for (size_t i = 0; i < 2; ++i)
    stand_in->output(i)->replaceAllUsesWith(tape->output(i));
  stand_in->destroy();
  return graph;
}

const torch::jit::Node* tape_of(const std::shared_ptr<torch::jit::Graph>& graph) {
  return test::find_nodes(*graph, "aten_recompute::tape_backward").at(0);
}

TEST_F(UndefinedGradients, OperatorsOfOneUndefinedGradientAreSkipped) {
  const auto graph = backward_with(R"(
  %true : bool = prim::Constant[value=1]()
  %d1 : Tensor, %d2 : Tensor = aten::std_mean(%g, %true)
  %a : Tensor = aten::mul(%d1, %w)
  %sum : Tensor = aten_recompute::accumulate(%a, %d2)
  return (%a, %sum)
)");
  allow_undefined_gradients(*graph, 1);
  EXPECT_THAT(tape_of(graph)->is(symbols::kMayBeUndefined), ElementsAre(1, 1));
  EXPECT_EQ(test::find_nodes(*graph, "aten::mul").at(0)->i(symbols::kSkipIfUndefined), 0);
  // A sum accepts undefined operands.
  EXPECT_FALSE(test::find_nodes(*graph, "aten_recompute::accumulate")
                   .at(0)
                   ->hasAttribute(symbols::kSkipIfUndefined));
}

TEST_F(UndefinedGradients, AGradientThatIsReadBesideAnotherIsDefined) {
  const auto graph = backward_with(R"(
  %true : bool = prim::Constant[value=1]()
  %d1 : Tensor, %d2 : Tensor = aten::std_mean(%g, %true)
  %a : Tensor = aten::neg(%d1)
  %b : Tensor = aten::mul(%a, %g)
  return (%b, %d2)
)");
  allow_undefined_gradients(*graph, 1);
  EXPECT_THAT(tape_of(graph)->is(symbols::kMayBeUndefined), ElementsAre(0, 1));
  EXPECT_FALSE(
      test::find_nodes(*graph, "aten::neg").at(0)->hasAttribute(symbols::kSkipIfUndefined));
}

TEST_F(UndefinedGradients, ABackwardWithoutATapeStaysAsItIs) {
  const auto graph = test::parse(R"(
graph(%g : Tensor, %w : Tensor):
  %a : Tensor = aten::mul(%g, %w)
  return (%a)
)");
  const auto before = graph->toString();
  allow_undefined_gradients(*graph, 1);
  EXPECT_EQ(graph->toString(), before);
}

TEST_F(UndefinedGradients, AProgramPassesUndefinedGradientsOn) {
  const auto graph = test::parse(R"(
graph(%d : Tensor, %w : Tensor):
  %a : Tensor = aten::mul(%d, %w)
  %b : Tensor = aten::neg(%a)
  %c : Tensor = aten::neg(%w)
  return (%b, %c)
)");
  for (const char* kind : {"aten::mul", "aten::neg"}) {
    for (auto* node : test::find_nodes(*graph, kind))
      node->i_(symbols::kSkipIfUndefined, 0);
  }
  const Program program(graph);
  auto registers = program.start({c10::IValue(), at::ones({2})});
  program.run(registers, 0, program.instructions().size());
  EXPECT_TRUE(program.take_output(registers, 0).isNone());
  EXPECT_TRUE(test::bitwise_equal(program.take_output(registers, 1).toTensor(), -at::ones({2})));
}

}  // namespace
}  // namespace aten_recompute
