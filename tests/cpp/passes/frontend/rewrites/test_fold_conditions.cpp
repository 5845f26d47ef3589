#include "passes/frontend/rewrites/fold_conditions.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_nodes;

class FoldConditions : public test::TorchTest {};

// Returns what the graph's only output was folded to; no value if it was left alone.
std::optional<bool> folded(const std::string& ir) {
  const auto graph = test::parse(ir);
  const bool changed = fold_conditions(graph);
  graph->lint();
  const auto constant = torch::jit::toIValue(graph->outputs()[0]);
  EXPECT_EQ(constant.has_value(), changed);
  return constant ? std::optional(constant->toBool()) : std::nullopt;
}

TEST_F(FoldConditions, AValueIsItself) {
  EXPECT_EQ(folded(R"(
graph(%x : Tensor):
  %c : bool = aten::__is__(%x, %x)
  return (%c)
)"),
            true);
  EXPECT_EQ(folded(R"(
graph(%x : Tensor):
  %c : bool = aten::__isnot__(%x, %x)
  return (%c)
)"),
            false);
}

TEST_F(FoldConditions, ANewResultIsNoOtherValue) {
  EXPECT_EQ(folded(R"(
graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  %c : bool = aten::__is__(%x, %y)
  return (%c)
)"),
            false);
  EXPECT_EQ(folded(R"(
graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  %c : bool = aten::__isnot__(%y, %x)
  return (%c)
)"),
            true);
}

TEST_F(FoldConditions, TwoInputsMayBeOneTensor) {
  EXPECT_EQ(folded(R"(
graph(%x : Tensor, %y : Tensor):
  %c : bool = aten::__is__(%x, %y)
  return (%c)
)"),
            std::nullopt);
}

TEST_F(FoldConditions, WhatMayReturnItsArgumentIsNotToldApart) {
  EXPECT_EQ(folded(R"(
graph(%x : Tensor):
  %y : Tensor = aten::contiguous(%x)
  %c : bool = aten::__is__(%x, %y)
  return (%c)
)"),
            std::nullopt);
}

TEST_F(FoldConditions, OnlyTensorsAreCompared) {
  EXPECT_EQ(folded(R"(
graph(%x : Tensor?):
  %none : NoneType = prim::Constant()
  %c : bool = aten::__is__(%x, %none)
  return (%c)
)"),
            std::nullopt);
}

TEST_F(FoldConditions, ConditionsInBlocksAreFolded) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %b : bool):
  %y : bool = prim::If(%b)
    block0():
      %c : bool = aten::__is__(%x, %x)
      -> (%c)
    block1():
      -> (%b)
  return (%y)
)");
  EXPECT_TRUE(fold_conditions(graph));
  EXPECT_TRUE(find_nodes(*graph, "aten::__is__").empty());
  EXPECT_FALSE(fold_conditions(graph));
}

// ---- strings ----

// `text` defines %text; returns what `len(text) > bound` was folded to.
std::optional<bool> is_longer(const std::string& text, int bound = 0) {
  return folded(R"(
graph(%name : str, %b : bool):
  %bound : int = prim::Constant[value=)" +
                std::to_string(bound) + "]()\n" + text + R"(
  %n : int = aten::len(%text)
  %c : bool = aten::gt(%n, %bound)
  return (%c)
)");
}

TEST_F(FoldConditions, AConstantWithLettersIsNotEmpty) {
  EXPECT_EQ(is_longer(R"(  %text : str = prim::Constant[value="why"]())"), true);
  EXPECT_EQ(is_longer(R"(  %text : str = prim::Constant[value=""]())"), std::nullopt);
  EXPECT_EQ(is_longer(R"(  %text : str = prim::Constant[value="why"]())", 1), std::nullopt);
}

TEST_F(FoldConditions, AFormatWithLettersIsNotEmpty) {
  EXPECT_EQ(is_longer(R"(  %format : str = prim::Constant[value="<{}>"]()
  %text : str = aten::format(%format, %name))"),
            true);
  EXPECT_EQ(is_longer(R"(  %format : str = prim::Constant[value="{}{}"]()
  %text : str = aten::format(%format, %name, %name))"),
            std::nullopt);
}

TEST_F(FoldConditions, ASumOfStringsIsNotEmptyIfASummandIsNot) {
  EXPECT_EQ(is_longer(R"(  %word : str = prim::Constant[value="why"]()
  %text : str = aten::add(%name, %word))"),
            true);
  EXPECT_EQ(is_longer("  %text : str = aten::add(%name, %name)"), std::nullopt);
}

TEST_F(FoldConditions, AStringOfTwoBranchesIsNotEmptyIfNeitherIs) {
  const auto branches = [](const std::string& other) {
    return R"(  %text : str = prim::If(%b)
    block0():
      %one : str = prim::Constant[value="why"]()
      -> (%one)
    block1():
      %two : str = prim::Constant[value=")" +
           other + R"("]()
      -> (%two))";
  };
  EXPECT_EQ(is_longer(branches("how")), true);
  EXPECT_EQ(is_longer(branches("")), std::nullopt);
}

TEST_F(FoldConditions, AnInputMayBeEmpty) {
  EXPECT_EQ(folded(R"(
graph(%name : str):
  %zero : int = prim::Constant[value=0]()
  %n : int = aten::len(%name)
  %c : bool = aten::gt(%n, %zero)
  return (%c)
)"),
            std::nullopt);
}

TEST_F(FoldConditions, LengthsOfListsAreLeftAlone) {
  EXPECT_EQ(folded(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %list : Tensor[] = prim::ListConstruct(%x)
  %n : int = aten::len(%list)
  %c : bool = aten::gt(%n, %zero)
  return (%c)
)"),
            std::nullopt);
}

}  // namespace
}  // namespace aten_recompute
