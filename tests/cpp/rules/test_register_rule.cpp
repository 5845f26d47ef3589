// Rules that a C++ program registers, and operators of which only autograd knows the gradient.
#include <aten_recompute/register_rule.h>

#include <ATen/Functions.h>
#include <aten_recompute/aten_recompute.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/jit.h>
#include <torch/library.h>

#include <atomic>
#include <stdexcept>
#include <thread>

#include <nlohmann/json.hpp>
#include "ir/save_plan.h"
#include "passes/autodiff/differentiate.h"
#include "passes/profile/flops.h"
#include "rules/recomputability.h"
#include "rules/script_source.h"
#include "rules/user_rules.h"

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::ThrowsMessage;
using torch::jit::Module;

// x^3 * scale, differentiated by a torch::autograd::Function; the pair with x^2 has no derivative.
at::Tensor cube(const at::Tensor& x, double scale) {
  return x * x * x * scale;
}
std::tuple<at::Tensor, at::Tensor> cube_and_square(const at::Tensor& x, double scale) {
  return {x * x * x * scale, x * x};
}
at::Tensor cube_backward(const at::Tensor& grad, const at::Tensor& x, double scale) {
  return grad * (x * x) * (3 * scale);
}

struct CubeFunction : torch::autograd::Function<CubeFunction> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            double scale) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    context->save_for_backward({x});
    context->saved_data["scale"] = scale;
    return cube(x, scale);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto x = context->get_saved_variables().at(0);
    return {cube_backward(grads.at(0), x, context->saved_data["scale"].toDouble()), at::Tensor()};
  }
};
at::Tensor cube_autograd(const at::Tensor& x, double scale) {
  return CubeFunction::apply(x, scale);
}

TORCH_LIBRARY(aten_recompute_rules, m) {
  m.def("cube(Tensor x, float scale) -> Tensor");
  m.impl("cube", c10::DispatchKey::CPU, &cube);
  m.impl("cube", c10::DispatchKey::Autograd, &cube_autograd);
  m.def("cube_and_square(Tensor x, float scale) -> (Tensor, Tensor)");
  m.impl("cube_and_square", c10::DispatchKey::CPU, &cube_and_square);
  m.def("cube_backward(Tensor grad, Tensor x, float scale) -> Tensor");
  m.impl("cube_backward", c10::DispatchKey::CPU, &cube_backward);
}

const char* const kBackward = R"(
def backward(grad, x, scale: float):
    return torch.ops.aten_recompute_rules.cube_backward(grad, x, scale)
)";

class RegisterRule : public test::TorchTest {
 protected:
  // Removes the rules.
  ~RegisterRule() override {
    for (const auto* op : {"aten_recompute_rules::cube", "aten_recompute_rules::cube_and_square"})
      register_rule(op, {.replace = true});
  }
};

Module make_model() {
  return test::make_two_layers(R"(
def forward(self, x):
    h = ops.aten_recompute_rules.cube(self.first.forward(x), 2.)
    h = ops.aten_recompute_rules.cube(h.sigmoid(), 0.5)
    return self.second.forward(h.tanh()).pow(2).sum()
)",
                               script_resolver());
}

// Returns the gradients of the input and of the parameters.
std::vector<at::Tensor> gradients_of(Module& model, const at::Tensor& x) {
  const auto input = x.detach().clone().requires_grad_();
  model.forward({input}).toTensor().backward();
  std::vector<at::Tensor> gradients{input.grad()};
  for (const auto& parameter : model.parameters()) {
    gradients.push_back(parameter.grad());
    parameter.mutable_grad() = at::Tensor();
  }
  return gradients;
}

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_TRUE(test::bitwise_equal(a[i], b[i])) << i << ":\n" << a[i] << "\n" << b[i];
}

bool is_on_tape(const Module& lowered) {
  return report(lowered).find(R"("on_tape":["aten_recompute_rules::cube")") != std::string::npos;
}

const auto kStrategies = ::testing::Values(
    R"({"strategy": "none"})", R"({"strategy": "all"})", R"({"strategy": "segments"})",
    R"({"strategy": "budget", "time_budget": 1.4, "cost_model": "flops"})");

TEST_F(RegisterRule, TheReportCountsItsOperators) {
  using nlohmann::json;
  const auto counts = [] {
    auto lowered = lower(make_model(), R"({"strategy": "none"})");
    gradients_of(lowered, at::randn({5, 4}));
    return json::parse(report(lowered))
        .at("/methods/0/specialisations/0/regions/0/variants/0/gradients_by"_json_pointer);
  };
  const json ours = {{"aten::linear", 2},
                     {"aten::sigmoid", 1},
                     {"aten::tanh", 1},
                     {"aten::pow.Tensor_Scalar", 1},
                     {"aten::sum", 1}};
  const json cubes = {{"aten_recompute_rules::cube", 2}};
  EXPECT_EQ(counts(), json({{"rule", ours}, {"user_rule", json::object()}, {"tape", cubes}}));
  register_rule("aten_recompute_rules::cube", {.backward = {{"x", kBackward}}});
  EXPECT_EQ(counts(), json({{"rule", ours}, {"user_rule", cubes}, {"tape", json::object()}}));
}

class RegisterRuleStrategy : public RegisterRule,
                             public ::testing::WithParamInterface<const char*> {};

TEST_P(RegisterRuleStrategy, AnAutogradFunctionNeedsNoRule) {
  auto model = make_model();
  auto lowered = lower(make_model(), GetParam());
  for (int step = 0; step < 2; ++step) {
    const auto x = at::randn({5, 4});
    expect_equal(gradients_of(lowered, x), gradients_of(model, x));
  }
  EXPECT_TRUE(is_on_tape(lowered));
}

TEST_P(RegisterRuleStrategy, ARuleGivesTheGradientsOfTheAutogradFunction) {
  register_rule("aten_recompute_rules::cube", {.backward = {{"x", kBackward}}});
  auto model = make_model();
  auto lowered = lower(make_model(), GetParam());
  for (int step = 0; step < 2; ++step) {
    const auto x = at::randn({5, 4});
    expect_equal(gradients_of(lowered, x), gradients_of(model, x));
  }
  EXPECT_FALSE(is_on_tape(lowered));
}

INSTANTIATE_TEST_SUITE_P(RegisterRule, RegisterRuleStrategy, kStrategies);

JointGraph differentiated(const std::string& call) {
  return differentiate(test::parse(R"(
graph(%x : Tensor):
  %scale : float = prim::Constant[value=0.5]()
  %h : Tensor = aten::neg(%x)
  )" + call + "\n  return (%y)\n"),
                       {true}, {true});
}

const std::string kCube = "%y : Tensor = aten_recompute_rules::cube(%h, %scale)";

TEST_F(RegisterRule, FunctionsMayBeCompiledAndCallHelpers) {
  const auto unit = torch::jit::compile("def backward(grad, x):\n    return grad * x\n");
  register_rule("aten_recompute_rules::cube",
                {.backward = {{"x", unit->get_function("backward")}}});
  const auto joint = differentiated(kCube);
  EXPECT_THAT(
      test::backward_listing(joint),
      ElementsAre("$0 = aten::mul(grad_0, h)", HasSubstr("= aten_recompute::gradient_of_rule($0, "),
                  HasSubstr("= aten::neg(")));
  register_rule("aten_recompute_rules::cube",
                {.backward = {{"",
                               "def twice(x):\n    return x * 2\n"
                               "def backward(grad):\n    return twice(grad)\n"}},
                 .replace = true});
  EXPECT_THAT(test::backward_listing(differentiated(kCube)).front(),
              HasSubstr("aten::mul(grad_0, 2)"));
}

TEST_F(RegisterRule, AForwardMayReturnExtras) {
  register_rule("aten_recompute_rules::cube",
                {.backward = {{"x",
                               "def backward(grad, squares, scale: float):\n"
                               "    return grad * squares * (3 * scale)\n"}},
                 .forward = "def forward(x, scale: float):\n"
                            "    return torch.ops.aten_recompute_rules.cube_and_square(x, scale)\n",
                 .extras = {"squares"}});
  const auto joint = differentiated(kCube);
  EXPECT_THAT(test::find_nodes(*joint.graph, "aten_recompute_rules::cube"), IsEmpty());
  EXPECT_THAT(test::find_nodes(*joint.graph, "aten_recompute_rules::cube_and_square"),
              ::testing::SizeIs(1));
  EXPECT_THAT(captured_values(joint), ::testing::SizeIs(1));
}

TEST_F(RegisterRule, IfsOnNoneAreDecidedByTheType) {
  register_rule("aten_recompute_rules::cube_and_square", {.backward = {{"x", R"(
def backward(grad: Optional[Tensor], grad1: Optional[Tensor], x):
    gradient = x
    if grad is not None:
        gradient = gradient * grad
    if grad1 is not None:
        gradient = gradient + grad1
    return gradient
)"}}});
  const auto joint = differentiated(
      "%y : Tensor, %z : Tensor = aten_recompute_rules::cube_and_square(%h, %scale)");
  EXPECT_THAT(test::find_nodes(*joint.graph, "prim::If"), IsEmpty());
  EXPECT_THAT(test::find_nodes(*joint.graph, "aten::mul"), ::testing::SizeIs(1));
  EXPECT_THAT(test::find_nodes(*joint.graph, "aten::add"), IsEmpty());
}

TEST_F(RegisterRule, AFunctionThatWritesInPlaceIsOneOperator) {
  register_rule("aten_recompute_rules::cube",
                {.backward = {{"x",
                               "def backward(grad, x, scale: float, needs_x: bool):\n"
                               "    gradient = torch.zeros_like(grad)\n"
                               "    if needs_x:\n"
                               "        gradient[0] = grad[0] * scale\n"
                               "    else:\n"
                               "        gradient[0] = x[0]\n"
                               "    return gradient\n"}}});
  const auto joint = differentiated(kCube);
  const auto nodes = test::find_nodes(*joint.graph, "aten_recompute::rule_function");
  ASSERT_THAT(nodes, ::testing::SizeIs(1));
  EXPECT_THAT(test::names(nodes[0]->inputs()), ElementsAre("grad_0"));
  EXPECT_THAT(captured_values(joint), IsEmpty());
  EXPECT_EQ(recompute_veto(nodes[0]), RecomputeVeto::kNone);
  EXPECT_FALSE(draws_random_numbers(nodes[0]));
}

TEST_F(RegisterRule, AFunctionRunsAgainIfItsOperatorsMay) {
  register_rule(
      "aten_recompute_rules::cube",
      {.backward = {{"x", "def backward(grad):\n    return grad"}},
       .forward = "def forward(x, scale: float):\n"
                  "    y = torch.empty_like(x)\n"
                  "    y[0] = torch.ops.aten_recompute_rules.cube_and_square(x, scale)[0]\n"
                  "    return y\n"});
  const auto joint = differentiated(kCube);
  const auto nodes = test::find_nodes(*joint.graph, "aten_recompute::rule_function");
  ASSERT_THAT(nodes, ::testing::SizeIs(1));
  EXPECT_TRUE(draws_random_numbers(nodes[0]));
  EXPECT_EQ(recompute_veto(nodes[0]), RecomputeVeto::kNone);
  register_rule("aten_recompute_rules::cube_and_square", {.random = false, .recomputable = false});
  EXPECT_FALSE(draws_random_numbers(nodes[0]));
  EXPECT_EQ(recompute_veto(nodes[0]), RecomputeVeto::kRule);
}

TEST_F(RegisterRule, ARuleSaysWhetherAndHowAnOperatorRunsAgain) {
  auto joint = differentiated(kCube);
  auto* tape = test::find_value(*joint.graph, "y")->node();
  EXPECT_TRUE(draws_random_numbers(tape));  // no rule says that it does not
  EXPECT_EQ(recompute_veto(tape), RecomputeVeto::kNone);
  register_rule("aten_recompute_rules::cube", {.random = false, .recomputable = false});
  EXPECT_FALSE(draws_random_numbers(tape));
  EXPECT_EQ(recompute_veto(tape), RecomputeVeto::kRule);
  EXPECT_STREQ(to_string(RecomputeVeto::kRule), "its rule says so");
  register_rule("aten_recompute_rules::cube",
                {.backward = {{"x", kBackward}}, .random = true, .replace = true});
  joint = differentiated(kCube);
  auto* node = test::find_value(*joint.graph, "y")->node();
  EXPECT_TRUE(draws_random_numbers(node));
  EXPECT_EQ(recompute_veto(node), RecomputeVeto::kNone);
}

TEST_F(RegisterRule, FlopsOfARuleHoldWhereverTheOperatorRuns) {
  const auto joint = differentiated(kCube);
  auto* tape = test::find_value(*joint.graph, "y")->node();
  const auto x = at::empty({3, 4}, at::TensorOptions().device(at::kMeta));
  const auto count = [&](const torch::jit::Node* node) {
    std::vector<c10::IValue> operands;
    for (const auto* input : node->inputs())
      operands.push_back(input->debugName() == "h" ? c10::IValue(x) : c10::IValue(0.5));
    return count_flops(node, operands, {x, c10::IValue()});
  };
  EXPECT_DOUBLE_EQ(count(tape), 12);
  OperatorRule rule{.flops =
                        "def flops(x, scale: float, result):\n"
                        "    return 5 * x.size(0) + result.size(1) + scale\n"};
  register_rule("aten_recompute_rules::cube", rule);
  EXPECT_DOUBLE_EQ(count(tape), 19.5);
  rule.backward = {{"x", kBackward}};
  rule.replace = true;
  register_rule("aten_recompute_rules::cube", rule);
  const auto with_backward = differentiated(kCube);
  EXPECT_DOUBLE_EQ(count(test::find_value(*with_backward.graph, "y")->node()), 19.5);
  rule.flops = "def flops(x):\n    return -1\n";
  register_rule("aten_recompute_rules::cube", rule);
  EXPECT_THAT([&] { count(tape); },
              ThrowsMessage<c10::Error>(HasSubstr("aten_recompute_rules::cube: its rule's flops")));
}

TEST_F(RegisterRule, InvalidRulesAreErrorsThatNameTheOperator) {
  const auto message = [](const std::string& op, const OperatorRule& rule) -> std::string {
    try {
      register_rule(op, rule);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message("aten_recompute_rules::cubes", {}),
            "register_rule: aten_recompute_rules::cubes: there is no such operator: load the "
            "library that defines it first");
  EXPECT_THAT(message("aten_recompute_rules::cube", {.backward = {{"x", "def f(grad:\n"}}}),
              HasSubstr("backward of x does not compile: "));
  EXPECT_THAT(message("aten_recompute_rules::cube", {.flops = "x = 3"}),
              HasSubstr("flops does not compile: "));
  EXPECT_THAT(message("aten_recompute_rules::cube_backward",
                      {.backward = {{"x", "def f(grad):\n    return grad\n"}}}),
              HasSubstr("its argument \"grad\" has the name of a gradient or result"));
  EXPECT_THAT(message("aten_recompute_rules::cube", {}), HasSubstr("the rule is empty"));
  EXPECT_EQ(message("aten_recompute_rules::cube", {.random = false}), "");
  EXPECT_THAT(message("aten_recompute_rules::cube", {.random = true}),
              HasSubstr("given a rule already"));
  EXPECT_THAT(message("aten::_batch_norm_impl_index", {.recomputable = false}),
              HasSubstr("aten_recompute has a rule for it already"));
}

// Some threads register one of two rules; others lower and run, and each sees one of the two.
TEST_F(RegisterRule, ThreadsMayRegisterAndCompileAtOnce) {
  register_rule("aten_recompute_rules::cube", {.backward = {{"x", kBackward}}});
  std::atomic<int> wrong = 0;
  // LibTorch's counter for names of types is not thread-safe, so modules are made beforehand.
  std::vector<torch::jit::Module> modules;
  for (int i = 0; i < 80; ++i) {
    modules.push_back(test::make_module("Cube"));
    modules.back().define(
        "def forward(self, x):\n    return ops.aten_recompute_rules.cube(x, 2.)\n",
        script_resolver());
  }
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 10; ++i) {
        if (thread % 2 == 0) {
          const std::string factor = i % 2 == 0 ? "3" : "5";
          register_rule("aten_recompute_rules::cube",
                        {.backward = {{"x", "def backward(grad):\n    return grad * " + factor}},
                         .replace = true});
          continue;
        }
        auto lowered =
            lower(modules[static_cast<size_t>(10 * thread + i)], R"({"strategy": "all"})");
        const auto x = at::ones({2}).requires_grad_();
        lowered.forward({x}).toTensor().sum().backward();
        const auto gradient = x.grad()[0].item<double>();
        wrong += gradient != 3 && gradient != 5 && gradient != 6 ? 1 : 0;
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace aten_recompute
