#include "runtime/program.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "runtime/autograd_modes.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class ProgramTest : public test::TorchTest {};

using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl>;

WeakTensor weak(const at::Tensor& tensor) {
  return WeakTensor(tensor.getIntrusivePtr());
}

std::vector<c10::IValue> run_all(const Program& program, std::vector<c10::IValue> inputs) {
  auto registers = program.start(std::move(inputs));
  inputs.clear();
  program.run(registers, 0, program.instructions().size());
  std::vector<c10::IValue> outputs;
  for (size_t i = 0; i < program.outputs().size(); ++i) {
    outputs.push_back(program.take_output(registers, i));
  }
  return outputs;
}

TEST_F(ProgramTest, ComputesWhatTheGraphSays) {
  const Program program(test::parse(R"(
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %y : Tensor = aten::relu(%h)
  return (%y, %h)
)"));
  const auto x = at::randn({2, 3});
  const auto w = at::randn({3, 2});
  const auto outputs = run_all(program, {x, w});
  EXPECT_TRUE(test::bitwise_equal(outputs[0].toTensor(), at::relu(at::mm(x, w))));
  EXPECT_TRUE(test::bitwise_equal(outputs[1].toTensor(), at::mm(x, w)));
}

// Only neg reads x, so the memory of x is free when the next operator runs.
TEST_F(ProgramTest, AValueIsFreeBeforeTheOperatorAfterItsLastUse) {
  const Program program(test::parse(R"(
graph(%x : Tensor):
  %a : Tensor = aten::neg(%x)
  %b : Tensor = aten_recompute_test::probe(%a)
  return (%b)
)"));
  auto x = at::ones({4});
  const auto x_alive = weak(x);
  std::vector<bool> expired;
  const test::ScopedProbe probe([&] { expired.push_back(x_alive.expired()); });
  std::vector<c10::IValue> inputs{std::move(x)};
  run_all(program, std::move(inputs));
  EXPECT_THAT(expired, ElementsAre(true));
}

TEST_F(ProgramTest, AValueLivesUntilItsLastUse) {
  const Program program(test::parse(R"(
graph(%x : Tensor):
  %a : Tensor = aten::neg(%x)
  %b : Tensor = aten_recompute_test::probe(%a)
  %c : Tensor = aten::mul(%b, %x)
  %d : Tensor = aten_recompute_test::probe(%c)
  return (%d)
)"));
  auto x = at::ones({4});
  const auto x_alive = weak(x);
  std::vector<bool> expired;
  const test::ScopedProbe probe([&] { expired.push_back(x_alive.expired()); });
  std::vector<c10::IValue> inputs{std::move(x)};
  run_all(program, std::move(inputs));
  EXPECT_THAT(expired, ElementsAre(false, true));
}

TEST_F(ProgramTest, AnOutputStaysUntilItIsTaken) {
  const Program program(test::parse(R"(
graph(%x : Tensor):
  %a : Tensor = aten_recompute_test::probe(%x)
  return (%x)
)"));
  auto x = at::ones({4});
  const auto x_alive = weak(x);
  std::vector<c10::IValue> inputs{std::move(x)};
  auto registers = program.start(std::move(inputs));
  program.run(registers, 0, 1);
  EXPECT_FALSE(x_alive.expired());
  program.take_output(registers, 0);
  EXPECT_TRUE(x_alive.expired());
}

TEST_F(ProgramTest, AnUnreadInputIsFreedAtTheStart) {
  const Program program(test::parse(R"(
graph(%x : Tensor, %y : Tensor):
  %a : Tensor = aten::neg(%y)
  return (%a)
)"));
  auto x = at::ones({4});
  const auto x_alive = weak(x);
  std::vector<c10::IValue> inputs{std::move(x), at::ones({4})};
  const auto registers = program.start(std::move(inputs));
  EXPECT_TRUE(x_alive.expired());
}

// The operator gets the only reference, so it may reuse the memory.
TEST_F(ProgramTest, AnOperatorOwnsOperandsThatItReadsLast) {
  const Program program(test::parse(R"(
graph(%a : Tensor, %b : Tensor):
  %s : Tensor = aten_recompute::accumulate(%a, %b)
  return (%s)
)"));
  auto a = at::ones({4});
  const auto b = at::ones({4});
  const auto* memory = a.const_data_ptr();
  std::vector<c10::IValue> inputs{std::move(a), b};
  const auto sum = run_all(program, std::move(inputs))[0].toTensor();
  EXPECT_EQ(sum.const_data_ptr(), memory);
  EXPECT_TRUE(test::bitwise_equal(sum, at::full({4}, 2.0)));
  EXPECT_TRUE(test::bitwise_equal(b, at::ones({4})));
}

TEST_F(ProgramTest, AProgramCanStopAndContinue) {
  const Program program(test::parse(R"(
graph(%x : Tensor):
  %a : Tensor = aten::neg(%x)
  %b : Tensor = aten::relu(%a)
  return (%a, %b)
)"));
  EXPECT_EQ(program.output_ready_after(0), 1U);
  EXPECT_EQ(program.output_ready_after(1), 2U);
  const auto x = at::randn({4});
  auto registers = program.start({x});
  program.run(registers, 0, 1);
  program.run(registers, 1, 2);
  EXPECT_TRUE(test::bitwise_equal(program.take_output(registers, 0).toTensor(), -x));
  EXPECT_TRUE(test::bitwise_equal(program.take_output(registers, 1).toTensor(), at::relu(-x)));
}

TEST_F(ProgramTest, SkippedInstructionsOnlyReleaseTheirOperands) {
  const Program program(test::parse(R"(
graph(%x : Tensor, %y : Tensor):
  %a : Tensor = aten_recompute_test::probe(%x)
  %b : Tensor = aten::neg(%y)
  return (%a, %b)
)"));
  int calls = 0;
  const test::ScopedProbe probe([&] { ++calls; });
  auto x = at::ones({4});
  const auto x_alive = weak(x);
  std::vector<c10::IValue> inputs{std::move(x), at::ones({4})};
  auto registers = program.start(std::move(inputs));
  const std::vector<bool> skip{true, false};
  program.run(registers, 0, 2, &skip);
  EXPECT_EQ(calls, 0);
  EXPECT_TRUE(x_alive.expired());
  EXPECT_TRUE(program.take_output(registers, 0).isNone());
  EXPECT_TRUE(test::bitwise_equal(program.take_output(registers, 1).toTensor(), -at::ones({4})));
}

TEST_F(ProgramTest, AnObserverSeesValuesBeforeTheyAreFreed) {
  const Program program(test::parse(R"(
graph(%x : Tensor):
  %a : Tensor = aten::neg(%x)
  %b : Tensor = aten::relu(%a)
  return (%b)
)"));
  std::vector<std::string> seen;
  const Program::Observer observer = [&](size_t i, const Program::Registers& registers) {
    std::string line = std::to_string(i) + ":";
    for (const auto& value : registers) {
      line += value.isTensor() ? "T" : "-";
    }
    seen.push_back(line);
  };
  auto registers = program.start({at::ones({4})});
  program.run(registers, 0, 2, nullptr, &observer);
  // The registers are x, a, b. x is alive after neg and freed after relu.
  EXPECT_THAT(seen, ElementsAre("0:TT-", "1:-TT"));
}

TEST_F(ProgramTest, ControlFlowReadsValuesAroundIt) {
  const Program program(test::parse(R"(
graph(%x : Tensor, %flag : bool):
  %a : Tensor = aten::neg(%x)
  %dim : int = prim::Constant[value=0]()
  %n : int = prim::If(%flag)
    block0():
      %rows : int = aten::size(%a, %dim)
      -> (%rows)
    block1():
      -> (%dim)
  return (%n)
)"));
  ASSERT_THAT(program.instructions(), SizeIs(2));
  EXPECT_EQ(run_all(program, {at::ones({5}), true})[0].toInt(), 5);
  EXPECT_EQ(run_all(program, {at::ones({5}), false})[0].toInt(), 0);
}

TEST_F(ProgramTest, AnErrorInsideOfControlFlowIsRaised) {
  const Program program(test::parse(R"(
graph(%x : Tensor, %flag : bool):
  %message : str = prim::Constant[value="one row"]()
  %none : NoneType = prim::Constant()
  prim::If(%flag)
    block0():
      prim::RaiseException(%message, %none)
      -> ()
    block1():
      -> ()
  %a : Tensor = aten::neg(%x)
  return (%a)
)"));
  EXPECT_THAT(
      [&] {
        run_all(program, {at::ones({1}), true});
      },
      ::testing::ThrowsMessage<std::exception>(HasSubstr("one row")));
  EXPECT_TRUE(run_all(program, {at::ones({1}), false})[0].isTensor());
}

TEST_F(ProgramTest, OutputsCanBeInputsConstantsOrOtherOutputs) {
  const Program program(test::parse(R"(
graph(%x : Tensor):
  %seven : int = prim::Constant[value=7]()
  %a : Tensor = aten::neg(%x)
  return (%x, %seven, %a, %x, %a)
)"));
  EXPECT_EQ(program.output_ready_after(0), 0U);
  EXPECT_EQ(program.output_ready_after(1), 0U);
  const auto x = at::randn({3});
  const auto outputs = run_all(program, {x});
  EXPECT_TRUE(outputs[0].toTensor().is_same(x));
  EXPECT_EQ(outputs[1].toInt(), 7);
  EXPECT_TRUE(test::bitwise_equal(outputs[2].toTensor(), -x));
  EXPECT_TRUE(outputs[3].toTensor().is_same(x));
  EXPECT_TRUE(outputs[4].toTensor().is_same(outputs[2].toTensor()));
}

TEST_F(ProgramTest, OperatorsMayHaveAnyNumberOfArguments) {
  const Program program(test::parse(R"(
graph(%x : Tensor, %y : Tensor):
  %text : str = prim::Constant[value="{} of {}"]()
  %one : int = prim::Constant[value=1]()
  %list : Tensor[] = prim::ListConstruct(%x, %y)
  %a : Tensor, %b : Tensor = prim::ListUnpack(%list)
  %s : str = aten::format(%text, %one, %one)
  return (%b, %a, %s)
)"));
  const auto x = at::randn({2});
  const auto y = at::randn({3});
  const auto outputs = run_all(program, {x, y});
  EXPECT_TRUE(outputs[0].toTensor().is_same(y));
  EXPECT_TRUE(outputs[1].toTensor().is_same(x));
  EXPECT_EQ(outputs[2].toStringRef(), "1 of 1");
}

// This holds where views are not tracked, as in regions.
TEST_F(ProgramTest, AWriteIsCountedByTheTensorsVersion) {
  const Program program(test::parse(R"(
graph(%x : Tensor):
  %one : int = prim::Constant[value=1]()
  %y : Tensor = aten::add_(%x, %one, %one)
  return (%one)
)"));
  const auto x = at::zeros({});
  const auto before = x._version();
  {
    const WithoutAutograd guard;
    run_all(program, {x});
  }
  EXPECT_EQ(x.item<float>(), 1.0);
  EXPECT_EQ(x._version(), before + 1);
}

// Eager's matmul passes a lazily conjugated matrix to mm. If it were resolved first, the product
// would differ by a rounding.
TEST_F(ProgramTest, OperatorsSeeLazyConjugation) {
  const Program program(test::parse(R"(
graph(%x : Tensor):
  %y : Tensor = aten::conj(%x)
  %lazy : bool = aten_recompute_test::is_conjugated(%y)
  return (%lazy)
)"));
  const WithoutAutograd guard;
  const auto outputs = run_all(program, {at::zeros({2}, at::kComplexDouble)});
  EXPECT_TRUE(outputs[0].toBool());
}

}  // namespace
}  // namespace aten_recompute
