#include "passes/autodiff/insert_formula.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_value;
using ::testing::ElementsAre;

// A formula that multiplies where `flag` is true and where a weight is there.
CompiledFormula formula() {
  return {{"grad", "flag", "weight"}, test::parse(R"(
graph(%grad : Tensor, %flag : bool, %weight : Tensor?):
  %none : NoneType = prim::Constant()
  %given : bool = aten::__isnot__(%weight, %none)
  %y : Tensor = prim::If(%flag)
    block0():
      %z : Tensor = prim::If(%given)
        block0():
          %w : Tensor = prim::unchecked_unwrap_optional(%weight)
          %p : Tensor = aten::mul(%grad, %w)
          -> (%p)
        block1():
          %n : Tensor = aten::neg(%grad)
          -> (%n)
      -> (%z)
    block1():
      -> (%grad)
  return (%y)
)")};
}

// Formulas are inserted into this graph, applied to values of it.
class InsertFormula : public test::TorchTest {
 protected:
  InsertFormula() { graph_->setInsertPoint(graph_->return_node()); }

  std::vector<torch::jit::Value*> insert(const CompiledFormula& formula,
                                         const std::vector<std::string>& arguments) {
    std::vector<torch::jit::Value*> values;
    for (const auto& name : arguments)
      values.push_back(find_value(*graph_, name));
    auto results = insert_formula(*graph_, formula, values);
    graph_->lint();
    return results;
  }
  size_t count(const std::string& kind) const { return test::find_nodes(*graph_, kind).size(); }

  std::shared_ptr<torch::jit::Graph> graph_ = test::parse(R"(
graph(%x : Tensor, %w : Tensor, %maybe : Tensor?, %flag : bool):
  %true : bool = prim::Constant[value=1]()
  %false : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  return (%x)
)");
};

TEST_F(InsertFormula, IfsOnConstantsAreDecided) {
  const auto results = insert(formula(), {"x", "false", "w"});
  EXPECT_EQ(count("prim::If"), 0U);
  EXPECT_THAT(results, ElementsAre(find_value(*graph_, "x")));
}

TEST_F(InsertFormula, AnArgumentWithoutAnOptionalTypeIsThere) {
  insert(formula(), {"x", "true", "w"});
  EXPECT_EQ(count("prim::If"), 0U);
  EXPECT_EQ(count("aten::mul"), 1U);
  EXPECT_EQ(count("aten::neg"), 0U);
}

TEST_F(InsertFormula, AnArgumentWithoutAnOptionalTypeIsNotCast) {
  const CompiledFormula scaled{{"grad", "weight"}, test::parse(R"(
graph(%grad : Tensor, %weight : Tensor?):
  %none : NoneType = prim::Constant()
  %given : bool = aten::__isnot__(%weight, %none)
  %y : Tensor = prim::If(%given)
    block0():
      %w : Tensor = prim::unchecked_cast(%weight)
      %p : Tensor = aten::mul(%grad, %w)
      -> (%p)
    block1():
      -> (%grad)
  return (%y)
)")};
  const auto results = insert(scaled, {"x", "w"});
  EXPECT_EQ(count("prim::unchecked_cast"), 0U);
  EXPECT_EQ(results[0]->node()->input(1), find_value(*graph_, "w"));
}

TEST_F(InsertFormula, NoneIsNotThere) {
  insert(formula(), {"x", "true", "none"});
  EXPECT_EQ(count("prim::If"), 0U);
  EXPECT_EQ(count("aten::neg"), 1U);
}

TEST_F(InsertFormula, AnOptionalArgumentIsTestedWhenTheFormulaRuns) {
  insert(formula(), {"x", "true", "maybe"});
  EXPECT_EQ(count("prim::If"), 1U);
}

TEST_F(InsertFormula, AConditionThatIsNotConstantIsTestedWhenTheFormulaRuns) {
  insert(formula(), {"x", "flag", "w"});
  EXPECT_EQ(count("prim::If"), 1U);
}

TEST_F(InsertFormula, TheFormulaItselfIsNotChanged) {
  const auto compiled = formula();
  const auto before = compiled.graph->toString();
  insert(compiled, {"x", "true", "none"});
  EXPECT_EQ(compiled.graph->toString(), before);
}

TEST_F(InsertFormula, AFormulaThatIsOneOperatorIsOneNodeWithTheElementsOfItsTuple) {
  CompiledFormula one{{"grad", "unread", "x"},
                      test::parse(R"(
graph(%grad : Tensor, %unread : Tensor, %x : Tensor):
  %y : Tensor = aten::relu(%grad)
  %z : Tensor = aten::mul_(%y, %x)
  %t : (Tensor, Tensor) = prim::TupleConstruct(%z, %grad)
  return (%t)
)"),
                      /*is_one_operator=*/true};
  const auto results = insert(one, {"x", "maybe", "w"});
  const auto nodes = test::find_nodes(*graph_, "aten_recompute::rule_function");
  ASSERT_EQ(nodes.size(), 1U);
  EXPECT_THAT(nodes[0]->inputs(), ElementsAre(find_value(*graph_, "x"), find_value(*graph_, "w")))
      << "what the formula does not read is no operand";
  EXPECT_THAT(results, ElementsAre(nodes[0]->output(0), nodes[0]->output(1)));
}

}  // namespace
}  // namespace aten_recompute
