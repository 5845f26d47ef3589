#include "passes/autodiff/tape_sources.h"

#include <torch/csrc/jit/ir/ir.h>

#include "passes/autodiff/differentiate.h"
#include "runtime/tape.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class TapeSourcesTest : public test::TorchTest {};

constexpr auto kAlways = TapeSources::kAlways;
constexpr auto kNever = TapeSources::kNever;

TapeSources sources_of(const std::string& ir, const std::vector<bool>& requires_grad) {
  const auto graph = test::parse(ir);
  auto joint =
      differentiate(graph, requires_grad, std::vector<bool>(graph->outputs().size(), true));
  return number_tapes(joint);
}

TEST_F(TapeSourcesTest, WithoutTapesNoCallHasToTell) {
  const auto sources = sources_of(R"(
graph(%x : Tensor, %w : Tensor):
  %y : Tensor = aten::mul(%x, %w)
  %z : Tensor = aten::relu(%y)
  return (%y, %z)
)",
                                  {true, false});
  EXPECT_THAT(sources.outputs, ElementsAre(kAlways, kAlways));
  EXPECT_THAT(sources.values, IsEmpty());
  EXPECT_FALSE(sources.is_needed());
}

TEST_F(TapeSourcesTest, WhatIsMadeOfAResultOfATapeDependsOnIt) {
  const auto sources = sources_of(R"(
graph(%x : Tensor, %w : Tensor):
  %a : Tensor = aten_recompute_test::square(%x)
  %b : Tensor = aten::relu(%a)
  %c : Tensor = aten_recompute_test::square(%b)
  %d : Tensor = aten::mul(%c, %a)
  %e : Tensor = aten::mul(%d, %x)
  return (%b, %c, %d, %e)
)",
                                  {true, false});
  // b depends on what a, the first tape, depends on.
  ASSERT_THAT(sources.operands, SizeIs(2));
  EXPECT_THAT(sources.operands[0], ElementsAre(kAlways));
  EXPECT_THAT(sources.operands[1], ElementsAre(sources.outputs[0]));
  ASSERT_THAT(sources.outputs, SizeIs(4));
  EXPECT_EQ(sources.values.at(sources.outputs[0]).tape, 0);
  EXPECT_EQ(sources.values.at(sources.outputs[1]).tape, 1);
  EXPECT_THAT(sources.values.at(sources.outputs[2]).of,
              ElementsAre(sources.outputs[1], sources.outputs[0]));
  EXPECT_EQ(sources.outputs[3], kAlways);
  EXPECT_TRUE(sources.is_needed());
}

TEST_F(TapeSourcesTest, OperandsWithoutGradNeverDecide) {
  const auto sources = sources_of(R"(
graph(%x : Tensor, %w : Tensor):
  %a : Tensor = aten::mul(%x, %w)
  %b : Tensor = aten_recompute_test::square(%a)
  %c : Tensor = aten_recompute_test::square(%w)
  return (%b, %c)
)",
                                  {true, false});
  ASSERT_THAT(sources.operands, SizeIs(1));  // the second one is not differentiated
  EXPECT_THAT(sources.operands[0], ElementsAre(kAlways));
  EXPECT_THAT(sources.outputs, SizeIs(1));
}

TEST_F(TapeSourcesTest, ACallTellsWhichOutputsRequireGrad) {
  // Two tapes with one result each; the second one reads the first one's result.
  TapeSources sources;
  sources.operands = {{kAlways, kNever}, {0, kNever}};
  sources.values = {{0, 0, {}}, {1, 0, {}}, {-1, 0, {0, 1}}};
  sources.outputs = {0, 1, 2, kAlways};
  {
    TapeReach reach(&sources);
    EXPECT_EQ(TapeReach::current(), &reach);
    EXPECT_THAT(reach.outputs(), ElementsAre(false, false, false, true));
    reach.note(1, 0, 0);
    EXPECT_THAT(reach.outputs(), ElementsAre(false, false, false, true));
    reach.note(0, 0, 1);  // an operand that requires no grad
    EXPECT_THAT(reach.outputs(), ElementsAre(false, false, false, true));
    reach.note(0, 0, 0);
    EXPECT_THAT(reach.outputs(), ElementsAre(true, true, true, true));
    {
      const TapeReach none(nullptr);
      EXPECT_EQ(TapeReach::current(), nullptr);
      EXPECT_THAT(none.outputs(), IsEmpty());
    }
    EXPECT_EQ(TapeReach::current(), &reach);
  }
  EXPECT_EQ(TapeReach::current(), nullptr);
}

}  // namespace
}  // namespace aten_recompute
