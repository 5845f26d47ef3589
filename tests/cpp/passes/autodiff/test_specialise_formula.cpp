#include "passes/autodiff/specialise_formula.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_value;
using test::listing;
using ::testing::ElementsAre;

class SpecialiseFormula : public test::TorchTest {};

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

// Values that a formula may be applied to.
class Arguments {
 public:
  torch::jit::Value* operator[](const std::string& name) const { return find_value(*graph_, name); }

 private:
  std::shared_ptr<torch::jit::Graph> graph_ = test::parse(R"(
graph(%x : Tensor, %w : Tensor, %maybe : Tensor?, %flag : bool):
  %true : bool = prim::Constant[value=1]()
  %false : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  return (%x)
)");
};

TEST_F(SpecialiseFormula, IfsOnConstantsAreDecided) {
  const Arguments given;
  const auto graph = specialise_formula(formula(), {given["x"], given["false"], given["w"]});
  EXPECT_THAT(listing(*graph), ::testing::Each(::testing::Not(::testing::HasSubstr("prim::If"))));
  EXPECT_EQ(graph->outputs()[0], graph->inputs()[0]);
}

TEST_F(SpecialiseFormula, AnArgumentWithoutAnOptionalTypeIsThere) {
  const Arguments given;
  const auto graph = specialise_formula(formula(), {given["x"], given["true"], given["w"]});
  EXPECT_TRUE(test::find_nodes(*graph, "prim::If").empty());
  EXPECT_EQ(test::find_nodes(*graph, "aten::mul").size(), 1U);
  EXPECT_TRUE(test::find_nodes(*graph, "aten::neg").empty());
}

TEST_F(SpecialiseFormula, NoneIsNotThere) {
  const Arguments given;
  const auto graph = specialise_formula(formula(), {given["x"], given["true"], given["none"]});
  EXPECT_TRUE(test::find_nodes(*graph, "prim::If").empty());
  EXPECT_EQ(test::find_nodes(*graph, "aten::neg").size(), 1U);
}

TEST_F(SpecialiseFormula, WhatIsNotKnownIsAskedWhenItRuns) {
  const Arguments given;
  EXPECT_EQ(
      test::find_nodes(*specialise_formula(formula(), {given["x"], given["true"], given["maybe"]}),
                       "prim::If")
          .size(),
      1U);
  EXPECT_EQ(test::find_nodes(
                *specialise_formula(formula(), {given["x"], given["flag"], given["w"]}), "prim::If")
                .size(),
            1U);
}

TEST_F(SpecialiseFormula, TheFormulaItselfIsNotChanged) {
  const Arguments given;
  const auto compiled = formula();
  const auto before = compiled.graph->toString();
  specialise_formula(compiled, {given["x"], given["true"], given["none"]});
  EXPECT_EQ(compiled.graph->toString(), before);
}

TEST_F(SpecialiseFormula, AFormulaThatIsOneOperatorIsOneNode) {
  CompiledFormula one{{"grad", "unread", "x"},
                      test::parse(R"(
graph(%grad : Tensor, %unread : Tensor, %x : Tensor):
  %y : Tensor = aten::relu(%grad)
  %z : Tensor = aten::mul_(%y, %x)
  %t : (Tensor, Tensor) = prim::TupleConstruct(%z, %grad)
  return (%t)
)"),
                      /*is_one_operator=*/true};
  const Arguments given;
  const auto graph = specialise_formula(one, {given["x"], given["w"], given["w"]});
  graph->lint();
  const auto nodes = test::find_nodes(*graph, "aten_recompute::rule_function");
  ASSERT_EQ(nodes.size(), 1U);
  EXPECT_EQ(listing(*graph).size(), 1U);
  EXPECT_EQ(graph->inputs().size(), 3U);
  EXPECT_THAT(nodes[0]->inputs(), ElementsAre(graph->inputs()[0], graph->inputs()[2]))
      << "what the formula does not read is no operand";
  EXPECT_EQ(nodes[0]->outputs().size(), 2U);
}

}  // namespace
}  // namespace aten_recompute
