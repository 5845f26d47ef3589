#include "ir/memory_reuse.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include <vector>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using enum ReuseCondition;
using test::find_value;

class MemoryReuse : public test::TorchTest {};

// Whether an operator with these operands may write its result into operand `overwritten`.
bool allowed(ReuseCondition condition, const std::vector<c10::IValue>& operands,
             size_t overwritten = 0) {
  std::vector<OperandLayout> layouts;
  for (const auto& operand : operands)
    layouts.push_back(layout_of(operand));
  return layouts_allow_overwriting(condition, layouts, overwritten);
}

at::Tensor floats() {
  return at::randn({3, 4});
}

// ---- conditions ----

TEST_F(MemoryReuse, TensorsOfOneLayoutMayBeOverwritten) {
  EXPECT_TRUE(allowed(kTensorsAgree, {floats(), floats()}));
  EXPECT_TRUE(allowed(kTensorsAgree, {floats(), floats()}, 1));
  EXPECT_TRUE(allowed(kTensorsAgree, {floats().t(), floats().t()}));
  EXPECT_TRUE(allowed(kTensorsAgree, {floats(), 2.0}));
  EXPECT_FALSE(allowed(kTensorsAgree, {floats(), at::randn({4})}));
  EXPECT_FALSE(allowed(kTensorsAgree, {floats(), at::randn({4, 3}).t()}));
  EXPECT_FALSE(allowed(kTensorsAgree, {floats(), floats().to(at::kDouble)}));
}

// An elementwise result in new memory has the strides of its format, whatever the operand's are.
TEST_F(MemoryReuse, StridesOfDimensionsOfSizeOneAreThoseOfNewMemory) {
  const auto channels_last = at::empty_strided({8, 24, 1, 1}, {24, 1, 24, 24});
  for (const auto condition : {kTensorsAgree, kRowsAgree, kScalarsAgree}) {
    EXPECT_FALSE(allowed(condition, {channels_last, 2.0}));
    EXPECT_TRUE(allowed(condition, {at::randn({8, 24, 1, 1}), 2.0}));
  }
  EXPECT_FALSE(allowed(kMaskFits, {channels_last, channels_last > 0}));
  EXPECT_FALSE(allowed(kLoopsApply, {channels_last, channels_last > 0}));
  EXPECT_TRUE(allowed(kSumsAgree, {channels_last, channels_last}));
  EXPECT_FALSE(allowed(kSumsAgree, {channels_last, channels_last}, 1));
  const auto batch_of_one = at::randn({1, 3, 4, 5}).contiguous(at::MemoryFormat::ChannelsLast);
  EXPECT_TRUE(allowed(kTensorsAgree, {batch_of_one}));
  EXPECT_FALSE(allowed(kScalarsAgree, {batch_of_one, 2.0}));
}

TEST_F(MemoryReuse, ASingleElementIsNotOverwritten) {
  EXPECT_FALSE(allowed(kTensorsAgree, {at::randn({1}), at::randn({1})}));
  EXPECT_FALSE(allowed(kRowsAgree, {at::randn({1})}));
}

// The result would keep the memory of all rows alive.
TEST_F(MemoryReuse, ASliceOfALargerTensorIsNotOverwritten) {
  const auto larger = at::randn({2, 3, 4});
  EXPECT_FALSE(allowed(kTensorsAgree, {larger[1], floats()}));
  EXPECT_FALSE(allowed(kSumsAgree, {larger[0], floats()}));
  EXPECT_TRUE(allowed(kTensorsAgree, {larger.view({4, 6}), at::randn({4, 6})}));
}

TEST_F(MemoryReuse, RowsMustBeContiguous) {
  EXPECT_TRUE(allowed(kRowsAgree, {floats()}));
  EXPECT_FALSE(allowed(kRowsAgree, {floats().t()}));
}

TEST_F(MemoryReuse, ScalarsGoWithFloatAndDoubleOnly) {
  EXPECT_TRUE(allowed(kScalarsAgree, {floats(), 0.3}));
  EXPECT_TRUE(allowed(kScalarsAgree, {floats().to(at::kDouble), 0.3}));
  EXPECT_FALSE(allowed(kScalarsAgree, {floats().to(at::kHalf), 0.3}));
  EXPECT_FALSE(allowed(kScalarsAgree, {floats(), c10::complex<double>(0, 1)}));
}

TEST_F(MemoryReuse, AMaskMustBroadcastToAContiguousTensor) {
  const auto mask = floats() > 0;
  EXPECT_TRUE(allowed(kMaskFits, {floats(), mask, 0.0}));
  EXPECT_TRUE(allowed(kMaskFits, {floats(), mask.select(0, 0), 0.0}));
  EXPECT_FALSE(allowed(kMaskFits, {floats(), at::ones({2, 3, 4}, at::kBool), 0.0}));
  EXPECT_FALSE(allowed(kMaskFits, {at::randn({4, 3}).t(), mask, 0.0}));
  EXPECT_FALSE(allowed(kMaskFits, {floats(), mask.to(at::kByte), 0.0}));
  EXPECT_FALSE(allowed(kMaskFits, {floats(), mask, c10::complex<double>(0, 1)}));
}

TEST_F(MemoryReuse, LoopsNeedAMaskOfTheSameLayout) {
  EXPECT_TRUE(allowed(kLoopsApply, {floats(), floats() > 0}));
  EXPECT_TRUE(allowed(kLoopsApply, {floats().t(), floats().t() > 0}));
  EXPECT_FALSE(allowed(kLoopsApply, {floats(), at::ones({4}, at::kBool)}));
  EXPECT_FALSE(allowed(kLoopsApply, {floats().t(), at::ones({4, 3}, at::kBool)}));
}

TEST_F(MemoryReuse, BitsFitATensorWithTheirStride) {
  const auto bits = at::zeros({2}, at::kByte);
  const auto given = floats();
  EXPECT_TRUE(allowed(kBitsFit, {given, bits, given.strides().vec()}));
  EXPECT_FALSE(allowed(kBitsFit, {given, bits, given.t().strides().vec()}));
  EXPECT_FALSE(allowed(kBitsFit, {given, bits, c10::IValue()}));
}

TEST_F(MemoryReuse, SummandsNeedOneSizeAndTypeButNotOneStride) {
  EXPECT_TRUE(allowed(kSumsAgree, {floats(), at::randn({4, 3}).t()}));
  EXPECT_TRUE(allowed(kSumsAgree, {at::ones({2}, at::kLong), at::ones({2}, at::kLong)}));
  EXPECT_FALSE(allowed(kSumsAgree, {floats(), at::randn({4})}));
  EXPECT_FALSE(allowed(kSumsAgree, {floats(), floats().to(at::kDouble)}));
  EXPECT_FALSE(allowed(kSumsAgree, {floats(), c10::IValue()}));
}

TEST_F(MemoryReuse, ASummandWithGapsIsNotOverwritten) {
  const auto gaps = at::randn({3, 8}).slice(1, 0, 4);
  EXPECT_FALSE(allowed(kSumsAgree, {gaps, floats()}, 0));
  EXPECT_TRUE(allowed(kSumsAgree, {gaps, floats()}, 1));
}

// ATen orders the dimensions of a sum by the first summand.
TEST_F(MemoryReuse, ASummandIsOverwrittenIfTheSumLiesInItsOrder) {
  const auto expanded = at::randn({3, 1}).expand({3, 4});
  EXPECT_TRUE(allowed(kSumsAgree, {expanded, floats()}, 1));
  EXPECT_TRUE(allowed(kSumsAgree, {at::ones({}).expand({3, 4}), at::randn({4, 3}).t()}, 1));
  const auto turned = at::empty_strided({2, 3, 4}, {1, 8, 0});
  EXPECT_FALSE(allowed(kSumsAgree, {turned, at::randn({2, 3, 4})}, 1));
  EXPECT_TRUE(allowed(kSumsAgree, {turned, at::randn({3, 2, 4}).transpose(0, 1)}, 1));
}

// ---- what is a plain tensor ----

TEST_F(MemoryReuse, OnlyPlainFloatingPointTensorsAreOverwritten) {
  EXPECT_TRUE(layout_of(c10::IValue(floats())).is_plain);
  EXPECT_FALSE(layout_of(c10::IValue(floats().requires_grad_())).is_plain);
  EXPECT_FALSE(layout_of(c10::IValue(at::ones({2}, at::kLong))).is_plain);
  EXPECT_FALSE(layout_of(c10::IValue(at::randn({3, 1}).expand({3, 4}))).is_plain);
  EXPECT_FALSE(layout_of(c10::IValue(at::randn({3, 8}).slice(1, 0, 4))).is_plain);
  EXPECT_FALSE(allowed(kTensorsAgree, {floats().requires_grad_()}));
}

TEST_F(MemoryReuse, TensorsWithoutStridesAreNoTensorsHere) {
  using Kind = OperandLayout::Kind;
  EXPECT_EQ(layout_of(c10::IValue(floats())).kind, Kind::kTensor);
  EXPECT_EQ(layout_of(c10::IValue(floats().to_sparse())).kind, Kind::kOther);
  EXPECT_EQ(layout_of(c10::IValue(at::Tensor())).kind, Kind::kOther);
  EXPECT_EQ(layout_of(c10::IValue(std::vector<int64_t>{1, 2})).kind, Kind::kIntegers);
  EXPECT_EQ(layout_of(c10::IValue(c10::complex<double>(1, 1))).kind, Kind::kComplexNumber);
  EXPECT_EQ(layout_of(c10::IValue(1.0)).kind, Kind::kOther);
}

TEST_F(MemoryReuse, AMetaTensorIsJudgedAsOneOnTheGivenDevice) {
  const auto meta = at::empty({3, 4}, at::kMeta);
  const std::vector<OperandLayout> on_cpu{layout_of(meta, at::kCPU)};
  EXPECT_TRUE(layouts_allow_overwriting(kRowsAgree, on_cpu, 0));
  const std::vector<OperandLayout> on_gpu{layout_of(meta, at::kCUDA)};
  EXPECT_FALSE(layouts_allow_overwriting(kRowsAgree, on_gpu, 0));
  EXPECT_TRUE(layouts_allow_overwriting(kTensorsAgree, on_gpu, 0));
}

TEST_F(MemoryReuse, ASecondReferenceToTheTensorOrToItsMemoryIsSeen) {
  auto tensor = floats();
  EXPECT_TRUE(is_only_reference(tensor));
  {
    const auto second = tensor;
    EXPECT_FALSE(is_only_reference(tensor));
  }
  {
    const auto view = tensor.t();
    EXPECT_FALSE(is_only_reference(tensor));
  }
  EXPECT_TRUE(is_only_reference(tensor));
}

// ---- memory of the program's own ----

class OwnMemoryTest : public test::TorchTest {};

OwnMemory own_memory_of(torch::jit::Graph& graph) {
  OwnMemory own;
  for (const auto* node : graph.nodes())
    own.add_outputs_of(node);
  return own;
}

TEST_F(OwnMemoryTest, ResultsAreOwnAndInputsAreNot) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  return (%y)
)");
  const auto own = own_memory_of(*graph);
  EXPECT_TRUE(own.contains(find_value(*graph, "y")));
  EXPECT_FALSE(own.contains(find_value(*graph, "x")));
}

TEST_F(OwnMemoryTest, AViewIsOwnIfWhatItShowsIs) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %of_input : Tensor = aten::t(%x)
  %y : Tensor = aten::relu(%x)
  %of_own : Tensor = aten::t(%y)
  %written : Tensor = aten::relu_(%of_input)
  return (%of_input, %of_own, %written)
)");
  const auto own = own_memory_of(*graph);
  EXPECT_FALSE(own.contains(find_value(*graph, "of_input")));
  EXPECT_TRUE(own.contains(find_value(*graph, "of_own")));
  EXPECT_FALSE(own.contains(find_value(*graph, "written")));
}

TEST_F(OwnMemoryTest, AListIsOwnIfAllItsElementsAre) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  %own : Tensor[] = prim::ListConstruct(%y, %y)
  %mixed : Tensor[] = prim::ListConstruct(%y, %x)
  %a : Tensor, %b : Tensor = prim::ListUnpack(%mixed)
  return (%own, %a)
)");
  const auto own = own_memory_of(*graph);
  EXPECT_TRUE(own.contains(find_value(*graph, "own")));
  EXPECT_FALSE(own.contains(find_value(*graph, "mixed")));
  EXPECT_FALSE(own.contains(find_value(*graph, "a")));
}

TEST_F(OwnMemoryTest, ResultsOfTapesAndOfControlFlowAreNotOwn) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %b : bool):
  %y : Tensor, %tape : Any = aten_recompute::tape_forward(%x)
  %z : Tensor = prim::If(%b)
    block0():
      %inner : Tensor = aten::relu(%x)
      -> (%inner)
    block1():
      %other : Tensor = aten::neg(%x)
      -> (%other)
  return (%y, %z)
)");
  const auto own = own_memory_of(*graph);
  EXPECT_FALSE(own.contains(find_value(*graph, "y")));
  EXPECT_FALSE(own.contains(find_value(*graph, "z")));
}

}  // namespace
}  // namespace aten_recompute
