#include "passes/frontend/path/graph_of_value.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::jit::Graph;
using torch::jit::Node;
using torch::jit::Value;

class GraphOfValueTest : public test::TorchTest {
 protected:
  Value* value(const std::string& name) { return test::find_value(*graph_, name); }

  std::optional<GraphOfValue> copy_of(const std::string& name, c10::Symbol input = c10::Symbol(),
                                      c10::Symbol left_out = c10::Symbol()) {
    return graph_of_value(
        value(name),
        [&](const Value* each) {
          return each->node()->kind() == c10::prim::Param || each->node()->kind() == input;
        },
        [&](const Node* node) { return node->kind() == left_out; });
  }

  std::shared_ptr<Graph> graph_ = test::parse(R"(
graph(%x : Tensor, %y : Tensor, %flag : bool):
  %dim : int = prim::Constant[value=0]()
  %keep : bool = prim::Constant[value=0]()
  %largest : Tensor, %place : Tensor = aten::max(%x, %dim, %keep)
  %a : Tensor = aten::relu(%largest)
  %b : Tensor = aten::tanh(%y)
  %c : Tensor = aten::mul(%a, %a)
  %chosen : Tensor = prim::If(%flag)
    block0():
      -> (%c)
    block1():
      -> (%b)
  return (%chosen)
)");
};

TEST_F(GraphOfValueTest, HasWhatTheValueIsComputedFromAlone) {
  const auto copy = copy_of("c");
  ASSERT_TRUE(copy);
  copy->graph->lint();
  EXPECT_THAT(copy->inputs, ElementsAre(value("x")));
  EXPECT_THAT(test::listing(*copy->graph),
              ElementsAre(HasSubstr("aten::max"), HasSubstr("aten::relu"), HasSubstr("aten::mul")));
}

TEST_F(GraphOfValueTest, EndsAtItsInputs) {
  const auto copy = copy_of("c", c10::Symbol::fromQualString("aten::max"));
  ASSERT_TRUE(copy);
  copy->graph->lint();
  EXPECT_THAT(copy->inputs, ElementsAre(value("largest")));
}

TEST_F(GraphOfValueTest, ThereIsNoneForWhatIsLeftOutOrHasBlocks) {
  EXPECT_FALSE(copy_of("c", c10::Symbol(), c10::aten::relu));
  EXPECT_TRUE(copy_of("c", c10::Symbol(), c10::aten::tanh));
  EXPECT_FALSE(copy_of("chosen"));
}

}  // namespace
}  // namespace aten_recompute
