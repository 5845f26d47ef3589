// The classes of errors, as C++ programs see them that call lowered and enabled modules.
#include <aten_recompute/aten_recompute.h>

#include <ATen/Functions.h>

#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::HasSubstr;
using ::testing::IsNull;
using ::testing::NotNull;
using ::testing::StartsWith;
using torch::jit::Module;

constexpr const char* kTiny =
    R"({"strategy": "budget", "memory_budget": 2, "cost_model": "flops"})";

class TypedErrorsOfModules : public test::TorchTest {};

// Returns what typed_error() finds in the error that `call` throws; nullptr where it throws none.
std::shared_ptr<const Error> error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return typed_error(error);
  }
  return nullptr;
}

Module inside_another(const Module& inner) {
  auto outer = test::make_module("Outer");
  outer.register_module("inner", inner);
  outer.define(R"(
def forward(self, x):
    return self.inner.forward(x) + 1
)");
  return outer;
}

void expect_unreachable(Module module) {
  const auto error = error_of([&] { module.forward({at::randn({8, 4})}); });
  const auto* budget = dynamic_cast<const BudgetUnreachableError*>(error.get());
  ASSERT_THAT(budget, NotNull());
  EXPECT_THAT(std::string(budget->what()), StartsWith("aten_recompute: memory_budget: "));
  EXPECT_EQ(budget->limit_bytes, 2);
  EXPECT_GT(budget->smallest_peak_bytes, 2);
  EXPECT_GE(budget->unplanned_peak_bytes, budget->smallest_peak_bytes);
}

TEST_F(TypedErrorsOfModules, ABudgetThatCannotBeKept) {
  expect_unreachable(lower(test::make_model(), kTiny));
}

TEST_F(TypedErrorsOfModules, ABudgetOfAnEnabledModule) {
  auto model = test::make_model();
  enable(model, kTiny);
  expect_unreachable(model);
}

TEST_F(TypedErrorsOfModules, ABudgetOfAModuleInsideAnother) {
  expect_unreachable(inside_another(lower(test::make_model(), kTiny)));
  expect_unreachable(inside_another(inside_another(lower(test::make_model(), kTiny))));
}

TEST_F(TypedErrorsOfModules, ATypedErrorCanBeThrownAgain) {
  auto lowered = lower(test::make_model(), kTiny);
  const auto error = error_of([&] { lowered.forward({at::randn({8, 4})}); });
  ASSERT_THAT(error, NotNull());
  EXPECT_THROW(error->raise(), BudgetUnreachableError);
  EXPECT_THROW(error->raise(), std::runtime_error);
}

TEST_F(TypedErrorsOfModules, ErrorsOfPyTorchAreNone) {
  auto lowered = lower(test::make_model(), R"({"strategy": "all"})");
  EXPECT_THROW(lowered.forward({at::randn({8, 5})}), std::exception);
  EXPECT_THAT(error_of([&] { lowered.forward({at::randn({8, 5})}); }), IsNull());
}

TEST_F(TypedErrorsOfModules, InvalidArgumentsAreCaughtByTheirClass) {
  const auto model = test::make_model();
  EXPECT_THROW(report(model), NotLoweredError);
  EXPECT_THROW(report(model), std::invalid_argument);
  EXPECT_THROW(lower(model, "", {"forwrad"}), std::invalid_argument);
  try {
    lower(model, "", {"forwrad"});
    FAIL();
  } catch (const NoSuchMethodError& error) {
    EXPECT_EQ(error.method, "forwrad");
    EXPECT_THAT(std::string(error.what()), HasSubstr("no method \"forwrad\""));
  }
  EXPECT_THROW(enable(model, R"({"strategy": "alll"})"), std::invalid_argument);
  try {
    enable(model, R"({"strategy": "alll"})");
    FAIL();
  } catch (const InvalidOptionError& error) {
    EXPECT_EQ(error.option, "strategy");
  }
}

TEST_F(TypedErrorsOfModules, APatternThatMatchesNothingIsAnInvalidOption) {
  try {
    lower(test::make_model(), R"({"strategy": "all", "pattern": "towers"})");
    FAIL();
  } catch (const InvalidOptionError& error) {
    EXPECT_EQ(error.option, "pattern");
  }
}

TEST_F(TypedErrorsOfModules, AFunctionThatIsNotEnabled) {
  const auto model = test::make_model();
  auto& function = model.get_method("forward").function();
  EXPECT_THROW(report(function), NotEnabledError);
  EXPECT_THROW(report(function), std::invalid_argument);
}

TEST_F(TypedErrorsOfModules, APlanOfAnotherModel) {
  auto planned = lower(test::make_model(), R"({"strategy": "all", "profile": true})");
  planned.forward({at::randn({8, 4})});
  auto file = plan(planned);
  auto other = test::make_module("Other");
  other.register_parameter("weight", at::randn({4}).set_requires_grad(true), false);
  other.define(R"(
def forward(self, x):
    return (x * self.weight).sum()
)");
  auto lowered = lower(other, R"({"plan": )" + file + "}");
  const auto error = error_of([&] { lowered.forward({at::randn({8, 4})}); });
  const auto* mismatch = dynamic_cast<const PlanMismatchError*>(error.get());
  ASSERT_THAT(mismatch, NotNull());
  EXPECT_THAT(std::string(mismatch->what()), HasSubstr(mismatch->region));
  EXPECT_EQ(mismatch->region.size(), 16);
}

TEST_F(TypedErrorsOfModules, ARuleThatCannotBeRegistered) {
  try {
    register_rule("nobody::knows", {});
    FAIL();
  } catch (const InvalidRuleError& error) {
    EXPECT_EQ(error.op, "nobody::knows");
  }
  EXPECT_THROW(register_rule("nobody::knows", {}), std::invalid_argument);
}

}  // namespace
}  // namespace aten_recompute
