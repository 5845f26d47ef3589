#include "runtime/in_place.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <ostream>

#include "runtime/program.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using InPlace = test::TorchTest;

// Compares bytes, so that zeros keep their sign and NaN equals itself.
bool same_bits(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && std::memcmp(a.data_ptr(), b.data_ptr(), a.nbytes()) == 0;
}

// Runs the program on `inputs`, which nothing else refers to, and returns its output.
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

// A node whose operands have one layout, and the operands that it may overwrite.
struct Form {
  std::string name;
  std::string constants;
  std::string call;  // of %x, %y and the constants
  std::vector<size_t> operands;
  bool for_halves = true;
  bool in_any_order = true;  // of the elements in memory
};

std::ostream& operator<<(std::ostream& stream, const Form& form) {
  return stream << form.name;
}

Form unary(const std::string& op, const std::string& constants = "",
           const std::string& arguments = "") {
  return {op, constants, "aten::" + op + "(%x" + arguments + ")", {0}};
}

Form backward(const std::string& op, std::vector<size_t> operands,
              const std::string& constants = "", const std::string& arguments = "") {
  return {op, constants, "aten::" + op + "(%x, %y" + arguments + ")", std::move(operands)};
}

const std::string kScalar = "  %a : float = prim::Constant[value=0.3]()\n";
const std::string kTwoScalars = kScalar + "  %b : float = prim::Constant[value=1.7]()\n";
const std::string kThreeScalars = kTwoScalars + "  %c : float = prim::Constant[value=1.]()\n";
const std::string kFalse = "  %no : bool = prim::Constant[value=0]()\n";
const std::string kErf = "  %kind : str = prim::Constant[value=\"none\"]()\n";
const std::string kTanh = "  %kind : str = prim::Constant[value=\"tanh\"]()\n";

std::vector<Form> forms() {
  std::vector<Form> all = {
      unary("relu"),
      unary("silu"),
      unary("tanh"),
      unary("sigmoid"),
      unary("neg"),
      unary("exp"),
      unary("hardswish"),
      unary("hardsigmoid"),
      unary("sqrt"),
      unary("rsqrt"),
      unary("gelu", kErf, ", %kind"),
      unary("gelu", kTanh, ", %kind"),
      unary("hardtanh", kTwoScalars, ", %a, %b"),
      unary("leaky_relu", kScalar, ", %a"),
      unary("elu", kThreeScalars, ", %a, %b, %c"),
      unary("softplus", kTwoScalars, ", %a, %b"),
      backward("threshold_backward", {0, 1}, kScalar, ", %a"),
      backward("gelu_backward", {0}, kErf, ", %kind"),
      backward("gelu_backward", {0}, kTanh, ", %kind"),
      backward("silu_backward", {0, 1}),
      backward("tanh_backward", {0, 1}),
      backward("sigmoid_backward", {0, 1}),
      backward("hardsigmoid_backward", {0, 1}),
      backward("hardtanh_backward", {0, 1}, kTwoScalars, ", %a, %b"),
      backward("leaky_relu_backward", {0, 1}, kScalar + kFalse, ", %a, %no"),
      backward("softplus_backward", {0, 1}, kTwoScalars, ", %a, %b"),
      {"elu_backward",
       kThreeScalars + kFalse,
       "aten::elu_backward(%x, %a, %b, %c, %no, %y)",
       {0, 5}},
  };
  for (const std::string op : {"add", "sub"})
    all.push_back({op, kScalar, "aten::" + op + "(%x, %y, %a)", {0, 1}});
  for (const std::string op : {"mul", "div"})
    all.push_back({op, "", "aten::" + op + "(%x, %y)", {0, 1}});
  for (const std::string op : {"add", "sub"})
    all.push_back({op + " scalar", kTwoScalars, "aten::" + op + "(%x, %a, %b)", {0}, false});
  for (const std::string op : {"mul", "div"})
    all.push_back({op + " scalar", kScalar, "aten::" + op + "(%x, %a)", {0}, false});
  for (const std::string dim : {"0", "-1"}) {
    const auto constants = "  %dim : int = prim::Constant[value=" + dim + "]()\n" + kFalse;
    for (const std::string op : {"_softmax", "_log_softmax"}) {
      all.push_back(
          {op + " over " + dim, constants, "aten::" + op + "(%x, %dim, %no)", {0}, true, false});
    }
    // The last argument is the type of x.
    for (const std::string op : {"_softmax_backward_data", "_log_softmax_backward_data"}) {
      all.push_back({op + " over " + dim,
                     constants + "  %dtype : int = prim::dtype(%x)\n",
                     "aten::" + op + "(%x, %y, %dim, %dtype)",
                     {0, 1},
                     true,
                     false});
    }
  }
  return all;
}

// Puts the numbers at which some kernel decides something among the first elements, in other places
// of each tensor.
void put_in_special_numbers(const at::Tensor& tensor, int64_t first) {
  const auto inf = std::numeric_limits<double>::infinity();
  const auto numbers = at::tensor({0., -0., 0.3, -0.3, 1.7, -1.7, 3., -3., 88., -88., inf, -inf,
                                   std::numeric_limits<double>::quiet_NaN()},
                                  at::kDouble)
                           .to(tensor.scalar_type());
  const auto elements = tensor.as_strided({tensor.numel()}, {1});
  elements.narrow(0, first, numbers.numel()).copy_(numbers);
  elements.narrow(0, tensor.numel() - numbers.numel(), numbers.numel()).copy_(numbers);
}

class InPlaceForms : public test::TorchTest, public testing::WithParamInterface<Form> {};

TEST_P(InPlaceForms, GiveTheResultOfTheOperator) {
  const auto& form = GetParam();
  const auto graph = test::parse("graph(%x : Tensor, %y : Tensor):\n" + form.constants +
                                 "  %z : Tensor = " + form.call + "\n  return (%z)\n");
  auto* node = graph->return_node()->input(0)->node();
  EXPECT_EQ(overwritable_operands(node), form.operands);
  const auto in_place = in_place_forms(node);
  ASSERT_EQ(in_place.size(), form.operands.size());
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    // Sizes with a rest after whole vectors, for several threads, and in another memory order.
    for (const auto& like : {at::empty({1037}), at::empty({130, 1031}),
                             at::empty({3, 5, 7, 9}, at::MemoryFormat::ChannelsLast)}) {
      const auto x = at::randn_like(like, at::TensorOptions().dtype(dtype)).mul_(3);
      const auto y = at::randn_like(x).mul_(3);
      put_in_special_numbers(x, 0);
      put_in_special_numbers(y, 5);
      auto operands = [&] {
        std::vector<c10::IValue> values;
        for (auto* input : node->inputs()) {
          if (input == graph->inputs()[0])
            values.emplace_back(x.clone());
          else if (input == graph->inputs()[1])
            values.emplace_back(y.clone());
          else if (input->node()->kind() == c10::prim::dtype)
            values.emplace_back(static_cast<int64_t>(dtype));
          else
            values.push_back(*torch::jit::toIValue(input));
        }
        return values;
      };
      auto expected = operands();
      node->getOperation()(expected);
      for (const auto& each : in_place) {
        auto stack = operands();
        if ((!form.for_halves && dtype != at::kFloat && dtype != at::kDouble) ||
            (!form.in_any_order && !x.is_contiguous())) {
          EXPECT_FALSE(may_overwrite(each, stack));
          continue;
        }
        ASSERT_TRUE(may_overwrite(each, stack));
        const auto* memory = stack[each.operand].toTensor().data_ptr();
        each.run(stack);
        ASSERT_EQ(stack.size(), 1U);
        const auto result = stack[0].toTensor();
        EXPECT_EQ(result.data_ptr(), memory);
        EXPECT_TRUE(same_bits(result, expected[0].toTensor())) << dtype;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, InPlaceForms, testing::ValuesIn(forms()), [](const auto& info) {
  auto name = info.param.name + "_" + std::to_string(info.index);
  std::replace(name.begin(), name.end(), ' ', '_');
  std::replace(name.begin(), name.end(), '-', 'm');
  return name;
});

TEST_F(InPlace, AMaskIsFilledInPlaceIfItFits) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %mask : Tensor):
  %value : float = prim::Constant[value=-0.3]()
  %y : Tensor = aten::masked_fill(%x, %mask, %value)
  return (%y)
)");
  auto* node = graph->return_node()->input(0)->node();
  EXPECT_THAT(overwritable_operands(node), testing::ElementsAre(0));
  const auto form = in_place_forms(node).at(0);
  const auto wide = at::randn({3, 5, 7});
  const auto try_with = [&](const at::Tensor& x, const at::Tensor& mask) {
    std::vector<c10::IValue> stack{x.clone(), mask, -0.3};
    if (!may_overwrite(form, stack))
      return false;
    form.run(stack);
    const auto expected = at::masked_fill(x, mask, -0.3);
    EXPECT_TRUE(same_bits(stack[0].toTensor(), expected));
    return true;
  };
  EXPECT_TRUE(try_with(wide, wide > 0));
  EXPECT_TRUE(try_with(wide.to(at::kBFloat16), at::rand({5, 1}) > 0.5));
  // The result is contiguous and has the broadcast sizes.
  EXPECT_FALSE(try_with(wide.transpose(0, 1), at::rand({5, 3, 7}) > 0.5));
  EXPECT_FALSE(try_with(at::randn({5, 1}), at::rand({3, 5, 7}) > 0.5));
}

TEST_F(InPlace, ADropoutMaskIsAppliedInPlace) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %mask : Tensor):
  %p : float = prim::Constant[value=0.3]()
  %y : Tensor = aten_recompute::apply_dropout_mask(%x, %mask, %p)
  return (%y)
)");
  auto* node = graph->return_node()->input(0)->node();
  const auto form = in_place_forms(node).at(0);
  for (const auto dtype : {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf}) {
    const auto x = at::randn({130, 1031}).to(dtype);
    const auto mask = at::rand({130, 1031}) > 0.5;
    std::vector<c10::IValue> expected{x, mask, 0.3};
    node->getOperation()(expected);
    std::vector<c10::IValue> stack{x.clone(), mask, 0.3};
    const auto* memory = stack[0].toTensor().data_ptr();
    ASSERT_TRUE(may_overwrite(form, stack));
    form.run(stack);
    EXPECT_EQ(stack[0].toTensor().data_ptr(), memory);
    EXPECT_TRUE(same_bits(stack[0].toTensor(), expected[0].toTensor()));
    std::vector<c10::IValue> strided{at::randn({1031, 130}).t().contiguous().t(), mask, 0.3};
    EXPECT_FALSE(may_overwrite(form, c10::ArrayRef<c10::IValue>(strided.data(), 3)));
  }
}

TEST_F(InPlace, AProgramOverwritesOnlyWhatItMade) {
  const Program program(test::parse(R"(
graph(%x : Tensor, %xs : Tensor[]):
  %size : int[] = prim::Constant[value=[16]]()
  %one : int = prim::Constant[value=1]()
  %given : Tensor = aten::view(%x, %size)
  %a : Tensor = aten::relu(%given)
  %b : Tensor = aten::relu(%a)
  %v : Tensor = aten::view(%b, %size)
  %c : Tensor = aten::relu(%v)
  %first : Tensor, %second : Tensor = prim::ListUnpack(%xs)
  %d : Tensor = aten::relu(%first)
  %sum : Tensor = aten_recompute::accumulate(%second, %d)
  %e : Tensor = aten::relu(%sum)
  %f : Tensor = aten::mul(%x, %c)
  %written : Tensor = aten::add_(%x, %e, %one)
  %g : Tensor = aten::relu(%written)
  return (%f, %g)
)"));
  std::vector<std::string> in_place;
  for (const auto& instruction : program.instructions()) {
    for (const auto& form : instruction.in_place) {
      in_place.push_back(instruction.node->output()->debugName() + " " +
                         std::to_string(form.operand));
    }
  }
  EXPECT_THAT(in_place, testing::ElementsAre("b 0", "c 0", "f 1"));
}

TEST_F(InPlace, AViewOfWhatTheProgramMadeIsOverwrittenOnceItsBaseIsGone) {
  const auto x = at::randn({4, 4});
  const auto* const ir = R"(
graph(%x : Tensor):
  %size : int[] = prim::Constant[value=[16]]()
  %a : Tensor = aten::neg(%x)
  %v : Tensor = aten::view(%a, %size)
  %y : Tensor = aten::relu(%v)
  %%kept
)";
  const auto with = [&](const std::string& end) {
    return std::string(ir).replace(std::string(ir).find("%%kept"), 6, end);
  };
  EXPECT_TRUE(at::equal(run(with("return (%y)"), {x}), at::relu(-x).view({16})));
  // The base is read after the node that could overwrite the view.
  EXPECT_TRUE(
      at::equal(run(with("%b : Tensor = aten::exp(%a)\n  return (%b, %y)"), {x}), at::exp(-x)));
}

TEST_F(InPlace, TheSecondOperandIsOverwrittenIfTheFirstLivesOn) {
  const auto x = at::randn({16});
  const auto expected = at::sub(at::neg(x), at::exp(x));
  EXPECT_TRUE(at::equal(run(R"(
graph(%x : Tensor):
  %one : int = prim::Constant[value=1]()
  %a : Tensor = aten::neg(%x)
  %b : Tensor = aten::exp(%x)
  %y : Tensor = aten::sub(%a, %b, %one)
  return (%y, %a)
)",
                            {x}),
                        expected));
}

TEST_F(InPlace, ACallersBufferIsNotOverwritten) {
  std::vector<float> buffer(16, -1.0F);
  std::vector<c10::IValue> inputs{at::from_blob(buffer.data(), {16})};
  const auto y = run(kRelu, std::move(inputs));
  EXPECT_EQ(y.sum().item<float>(), 0.0F);
  EXPECT_EQ(buffer, std::vector<float>(16, -1.0F));
}

TEST_F(InPlace, AnOperandThatSomebodyHoldsIsNotOverwritten) {
  const auto x = at::randn({16});
  const auto before = x.clone();
  const auto y = run(kRelu, {x});
  EXPECT_NE(y.data_ptr(), x.data_ptr());
  EXPECT_TRUE(at::equal(x, before));
}

TEST_F(InPlace, AnOperandWhoseMemoryAViewSharesIsNotOverwritten) {
  auto x = at::randn({4, 4});
  const auto view = x.view({16});
  const auto before = view.clone();
  std::vector<c10::IValue> inputs{std::move(x)};
  run(kRelu, std::move(inputs));
  EXPECT_TRUE(at::equal(view, before));
}

TEST_F(InPlace, AnOperandThatIsReadLaterIsNotOverwritten) {
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

TEST_F(InPlace, AComplexScalarGivesANewTensor) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %s : complex):
  %y : Tensor = aten::mul(%x, %s)
  return (%y)
)");
  const auto form = in_place_forms(*graph->nodes().begin()).at(0);
  std::vector<c10::IValue> stack{at::randn({16}), c10::complex<double>(0, 1)};
  EXPECT_FALSE(may_overwrite(form, stack));
}

TEST_F(InPlace, SumsOfGradientsChooseTheirOperandThemselves) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %y : Tensor):
  %z : Tensor = aten_recompute::accumulate(%x, %y)
  return (%z)
)");
  EXPECT_THAT(overwritable_operands(*graph->nodes().begin()), testing::ElementsAre(0, 1));
  EXPECT_TRUE(in_place_forms(*graph->nodes().begin()).empty());
}

}  // namespace
}  // namespace aten_recompute
