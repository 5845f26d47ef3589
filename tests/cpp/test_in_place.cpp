// Operators that overwrite an operand which dies there.
#include "backend/in_place.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/ir/ir.h>

#include "backend/program.h"
#include "tests/cpp/testing.h"

namespace aten_recompute {
namespace {

using InPlace = test::TorchTest;

// Runs the program on `inputs`, which it owns alone; returns its output.
at::Tensor run(const std::string& ir, std::vector<c10::IValue> inputs) {
  const Program program(test::parse(ir));
  auto registers = program.start(std::move(inputs));
  program.run(registers, 0, program.instructions().size());
  return program.take_output(registers, 0).toTensor();
}

const char* const kRelu = R"(
graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  return (%y)
)";

TEST_F(InPlace, AnOperandThatDiesIsOverwritten) {
  auto x = at::randn({16});
  const auto expected = at::relu(x);
  const auto* memory = x.data_ptr();
  const auto graph = test::parse(kRelu);
  std::vector<c10::IValue> stack{std::move(x)};
  ASSERT_TRUE(may_overwrite_first_operand(stack));
  in_place_form (*graph->nodes().begin())(stack);
  EXPECT_EQ(stack.back().toTensor().data_ptr(), memory);
  EXPECT_TRUE(at::equal(stack.back().toTensor(), expected));
}

TEST_F(InPlace, AProgramOverwritesOnlyWhatItMade) {
  const Program program(test::parse(R"(
graph(%x : Tensor):
  %size : int[] = prim::Constant[value=[16]]()
  %a : Tensor = aten::relu(%x)
  %b : Tensor = aten::relu(%a)
  %v : Tensor = aten::view(%b, %size)
  %c : Tensor = aten::relu(%v)
  return (%c)
)"));
  std::vector<bool> in_place;
  for (const auto& instruction : program.instructions())
    in_place.push_back(static_cast<bool>(instruction.run_in_place));
  EXPECT_THAT(in_place, testing::ElementsAre(false, true, false, false));
}

TEST_F(InPlace, ACallersBufferIsNotOverwritten) {
  std::vector<float> buffer(16, -1.0F);
  std::vector<c10::IValue> inputs{at::from_blob(buffer.data(), {16})};
  const auto y = run(kRelu, std::move(inputs));
  EXPECT_EQ(y.sum().item<float>(), 0.0F);
  EXPECT_EQ(buffer, std::vector<float>(16, -1.0F));
}

TEST_F(InPlace, AnOperandThatSomebodyHoldsIsNot) {
  const auto x = at::randn({16});
  const auto before = x.clone();
  const auto y = run(kRelu, {x});
  EXPECT_NE(y.data_ptr(), x.data_ptr());
  EXPECT_TRUE(at::equal(x, before));
}

TEST_F(InPlace, AnOperandWhoseMemoryAViewSharesIsNot) {
  auto x = at::randn({4, 4});
  const auto view = x.view({16});
  const auto before = view.clone();
  std::vector<c10::IValue> inputs{std::move(x)};
  run(kRelu, std::move(inputs));
  EXPECT_TRUE(at::equal(view, before));
}

TEST_F(InPlace, AnOperandThatIsReadLaterIsNot) {
  auto x = at::randn({16});
  const auto expected = at::relu(x) * x;
  std::vector<c10::IValue> inputs{std::move(x)};
  EXPECT_TRUE(at::equal(run(R"(
graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  %z : Tensor = aten::mul(%y, %x)
  return (%z)
)",
                            std::move(inputs)),
                        expected));
}

TEST_F(InPlace, ASecondOperandThatBroadcastsOrPromotesGivesANewTensor) {
  const char* const ir = R"(
graph(%x : Tensor, %z : Tensor):
  %one : int = prim::Constant[value=1]()
  %y : Tensor = aten::add(%x, %z, %one)
  return (%y)
)";
  for (const auto& other :
       {at::randn({3, 4}), at::randn({4}, at::kDouble), at::randn({4}).to(at::kBFloat16)}) {
    auto x = at::randn({4});
    const auto expected = at::add(x, other);
    std::vector<c10::IValue> inputs{std::move(x), other};
    const auto y = run(ir, std::move(inputs));
    EXPECT_EQ(y.scalar_type(), expected.scalar_type());
    EXPECT_TRUE(at::equal(y, expected));
  }
}

TEST_F(InPlace, OperatorsWithAScalarHaveNoSuchForm) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %s : float):
  %y : Tensor = aten::mul(%x, %s)
  return (%y)
)");
  EXPECT_FALSE(in_place_form(*graph->nodes().begin()));
}

}  // namespace
}  // namespace aten_recompute
