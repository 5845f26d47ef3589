#include "backend/autograd/compiled_region.h"

#include <torch/csrc/jit/ir/ir.h>

#include "passes/partition/extract.h"
#include "passes/partition/splice.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CompiledRegionTest : public test::TorchTest {};

std::unique_ptr<CompiledRegion> compile(const JointGraph& joint) {
  RegionGraphs graphs;
  graphs.gradient = extract(joint);
  finish_backward(graphs);
  return std::make_unique<CompiledRegion>(std::move(graphs));
}

// The example of compiled_region.h. Its backward is
//   0: dw2 = mm(a, dy)  1: da = mm(dy, w2)  2: dh = threshold_backward(da, a)  3: dw1 = mm(x, dh)
//   4: dx = mm(dh, w1)
// with registers dy, x, w1, w2, a, dw2, da, dh, dw1, dx.
std::unique_ptr<CompiledRegion> two_layers() {
  return compile(test::parse_joint(
      {.num_inputs = 3, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0, 1, 2}}, R"(
graph(%x : Tensor, %w1 : Tensor, %w2 : Tensor, %dy : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h : Tensor = aten::mm(%x, %w1)
  %a : Tensor = aten::relu(%h)
  %y : Tensor = aten::mm(%a, %w2)
  aten_recompute::backward_start()
  %dw2 : Tensor = aten::mm(%a, %dy)
  %da : Tensor = aten::mm(%dy, %w2)
  %dh : Tensor = aten::threshold_backward(%da, %a, %zero)
  %dw1 : Tensor = aten::mm(%x, %dh)
  %dx : Tensor = aten::mm(%dh, %w1)
  return (%y, %dx, %dw1, %dw2)
)"));
}

// In a deep network, the captures of each sum would otherwise be those of all sums before it.
TEST_F(CompiledRegionTest, SumsOfGradientsDoNotHoldTheSizesThatTheyWereGiven) {
  const auto compiled_region = compile(test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %size : int[] = aten::size(%x)
  %dtype : int = prim::dtype(%x)
  %y : Tensor = aten::relu(%x)
  aten_recompute::backward_start()
  %a : Tensor = aten_recompute::reduce_grad(%dy, %size, %dtype)
  %v : Tensor = aten::view_as(%y, %a)
  %b : Tensor = aten_recompute::accumulate(%a, %v)
  return (%y, %b)
)"));
  const auto& backward = compiled_region->backward();
  const auto held = [&](size_t instruction) {
    std::vector<std::string> names;
    for (auto capture :
         compiled_region
             ->captures_of()[static_cast<size_t>(backward.instructions()[instruction].outputs[0])])
      names.push_back(backward.graph()->inputs()[static_cast<size_t>(capture)]->debugName());
    return names;
  };
  ASSERT_THAT(backward.instructions(), SizeIs(3));
  EXPECT_THAT(held(0), IsEmpty());
  EXPECT_THAT(held(2), ElementsAre("y"));
}

// The gradient of a weight is complete before the last read of the weight, and its receiver may
// update the weight.
TEST_F(CompiledRegionTest, AGradientLeavesAfterTheLastReadOfItsInput) {
  const auto compiled_region = two_layers();
  ASSERT_THAT(compiled_region->stages(), SizeIs(2));
  std::vector<std::pair<size_t, size_t>> bounds;
  std::vector<std::vector<size_t>> gradients;
  for (const auto& stage : compiled_region->stages()) {
    bounds.emplace_back(stage.begin, stage.end);
    gradients.push_back(stage.gradients);
  }
  EXPECT_THAT(bounds, ElementsAre(std::pair(0, 2), std::pair(2, 5)));
  EXPECT_THAT(gradients, ElementsAre(ElementsAre(2), ElementsAre(0, 1)));
}

TEST_F(CompiledRegionTest, WhatLaterStagesReadIsReadAfterAStage) {
  const auto compiled_region = two_layers();
  const auto read_after = [&](size_t stage) {
    std::vector<bool> is_read;
    for (size_t i = 0; i < compiled_region->backward().num_registers(); ++i)
      is_read.push_back(compiled_region->is_read_after(stage, static_cast<int32_t>(i)));
    return is_read;
  };
  const bool o = false;
  const bool x = true;
  //                                  dy x w1 w2 a dw2 da dh dw1 dx
  EXPECT_THAT(read_after(0), ElementsAre(o, x, x, o, x, o, x, x, x, x));
  EXPECT_THAT(read_after(1), Each(false));
}

TEST_F(CompiledRegionTest, AVjpThatIsAGradientLeavesFirst) {
  const auto compiled_region = compile(test::parse_joint(
      {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0, 1}}, R"(
graph(%x : Tensor, %w : Tensor, %dy : Tensor):
  %one : int = prim::Constant[value=1]()
  %y : Tensor = aten::sub(%x, %w, %one)
  aten_recompute::backward_start()
  %dw : Tensor = aten::neg(%dy)
  return (%y, %dy, %dw)
)"));
  ASSERT_THAT(compiled_region->stages(), SizeIs(2));
  EXPECT_EQ(compiled_region->stages()[0].end, 0U);
  EXPECT_THAT(compiled_region->stages()[0].gradients, ElementsAre(0));
  EXPECT_THAT(compiled_region->stages()[1].gradients, ElementsAre(1));
}

TEST_F(CompiledRegionTest, WithoutGradientsThereIsOneEmptyStage) {
  const auto compiled_region = compile(test::parse_joint({.num_inputs = 1, .num_outputs = 1}, R"(
graph(%x : Tensor):
  %y : Tensor = aten::neg(%x)
  aten_recompute::backward_start()
  return (%y)
)"));
  ASSERT_THAT(compiled_region->stages(), SizeIs(1));
  EXPECT_THAT(compiled_region->stages()[0].gradients, IsEmpty());
}

// 0: d2 = mul(dy2, w)  1: dw = mul(dy2, x)  2: d1 = mul(dy1, c)  3: dx = accumulate(d2, d1)
std::unique_ptr<CompiledRegion> two_outputs() {
  return compile(test::parse_joint(
      {.num_inputs = 2, .num_outputs = 2, .vjp_outputs = {0, 1}, .gradient_inputs = {0, 1}}, R"(
graph(%x : Tensor, %w : Tensor, %dy1 : Tensor, %dy2 : Tensor):
  %c : Tensor = aten::cos(%x)
  %y1 : Tensor = aten::sin(%x)
  %y2 : Tensor = aten::mul(%x, %w)
  aten_recompute::backward_start()
  %d2 : Tensor = aten::mul(%dy2, %w)
  %dw : Tensor = aten::mul(%dy2, %x)
  %d1 : Tensor = aten::mul(%dy1, %c)
  %dx : Tensor = aten_recompute::accumulate(%d2, %d1)
  return (%y1, %y2, %dx, %dw)
)"));
}

TEST_F(CompiledRegionTest, OperatorsOfUndefinedGradientsAreSkipped) {
  const auto compiled_region = two_outputs();
  const auto first = compiled_region->undefined_gradients({true, false});
  EXPECT_THAT(first->skip, ElementsAre(true, true, false, false));
  EXPECT_THAT(first->undefined, ElementsAre(false, true));
  EXPECT_THAT(first->zeros, ElementsAre(false, false));
  const auto second = compiled_region->undefined_gradients({false, true});
  EXPECT_THAT(second->skip, ElementsAre(false, false, true, false));
  EXPECT_THAT(second->undefined, ElementsAre(false, false));
  EXPECT_THAT(second->zeros, ElementsAre(false, false));
}

TEST_F(CompiledRegionTest, WithoutAnyGradientEverythingIsUndefined) {
  const auto none = two_outputs()->undefined_gradients({false, false});
  EXPECT_THAT(none->skip, Each(true));
  EXPECT_THAT(none->undefined, Each(true));
  EXPECT_THAT(none->zeros, Each(false));
}

// mul() needs its second operand, so that is computed from zeros.
TEST_F(CompiledRegionTest, UndefinedGradientsThatAreReadBecomeZeros) {
  const auto compiled_region = compile(test::parse_joint(
      {.num_inputs = 1, .num_outputs = 2, .vjp_outputs = {0, 1}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy1 : Tensor, %dy2 : Tensor):
  %y1 : Tensor = aten::sin(%x)
  %y2 : Tensor = aten::cos(%x)
  aten_recompute::backward_start()
  %d2 : Tensor = aten::neg(%dy2)
  %dx : Tensor = aten::mul(%dy1, %d2)
  return (%y1, %y2, %dx)
)"));
  const auto mask = compiled_region->undefined_gradients({true, false});
  EXPECT_THAT(mask->skip, ElementsAre(false, false));
  EXPECT_THAT(mask->undefined, ElementsAre(false));
  EXPECT_THAT(mask->zeros, ElementsAre(false, true));
}

// A recomputed node reads no gradient. It runs if one of its readers does.
TEST_F(CompiledRegionTest, RecomputationForAnUndefinedGradientIsSkipped) {
  auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 2, .vjp_outputs = {0, 1}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy1 : Tensor, %dy2 : Tensor):
  %a : Tensor = aten::exp(%x)
  %y1 : Tensor = aten::sin(%a)
  %y2 : Tensor = aten::cos(%a)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::mul(%dy1, %a)
  %d2 : Tensor = aten::mul(%dy2, %a)
  %dx : Tensor = aten_recompute::accumulate(%d1, %d2)
  return (%y1, %y2, %dx)
)");
  splice(joint, {});
  const auto compiled_region = compile(joint);
  EXPECT_THAT(compiled_region->undefined_gradients({false, true})->skip,
              ElementsAre(false, true, false, false));
  EXPECT_THAT(compiled_region->undefined_gradients({true, false})->skip,
              ElementsAre(false, false, true, false));
  EXPECT_THAT(compiled_region->undefined_gradients({false, false})->skip, Each(true));
}

TEST_F(CompiledRegionTest, AMaskIsComputedOnce) {
  const auto compiled_region = two_outputs();
  EXPECT_EQ(compiled_region->undefined_gradients({true, false}),
            compiled_region->undefined_gradients({true, false}));
}

// The captures are a, which has its own memory, xt, a view of x, and r, which is x or a copy.
TEST_F(CompiledRegionTest, CapturesThatMayShareMemoryWithInputsAreKnown) {
  const auto compiled_region = compile(test::parse_joint(
      {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {1}}, R"(
graph(%w : Tensor, %x : Tensor, %dy : Tensor):
  %a : Tensor = aten::exp(%x)
  %xt : Tensor = aten::t(%x)
  %size : int[] = aten::size(%xt)
  %r : Tensor = aten::reshape(%xt, %size)
  %y : Tensor = aten::mm(%a, %w)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::mul(%dy, %a)
  %d2 : Tensor = aten::mul(%d1, %xt)
  %d3 : Tensor = aten::mul(%d2, %r)
  return (%y, %d3)
)"));
  EXPECT_THAT(compiled_region->aliased_inputs(),
              ElementsAre(IsEmpty(), ElementsAre(1), ElementsAre(1)));
}

}  // namespace
}  // namespace aten_recompute
