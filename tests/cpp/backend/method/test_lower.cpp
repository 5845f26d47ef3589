// The C++ API: lower() and report().
#include <aten_recompute/aten_recompute.h>

#include <ATen/Functions.h>
#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/runtime/graph_executor.h>
#include <torch/csrc/jit/serialization/import.h>

#include <nlohmann/json.hpp>

#include <memory>
#include <sstream>
#include <stdexcept>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::ThrowsMessage;
using torch::jit::Module;

class Lower : public test::TorchTest {};

// Returns Linear, ReLU, dropout, Linear, with equal parameters at every call.
Module make_model() {
  return test::make_two_layers(R"(
def encode(self, x):
    return torch.relu(self.first.forward(x))
def forward(self, x, scale: float = 2.0):
    h = torch.dropout(self.encode(x), 0.25, self.training)
    return self.second.forward(h).mul(scale).pow(2).sum()
)");
}

// Does steps of plain SGD and returns the losses.
std::vector<at::Tensor> train(Module& model, int steps) {
  at::manual_seed(2);
  std::vector<at::Tensor> losses;
  for (int step = 0; step < steps; ++step) {
    const auto x = at::randn({5, 4});
    const auto loss = model.forward({x}).toTensor();
    loss.backward();
    const at::NoGradGuard guard;
    for (const auto& parameter : model.parameters()) {
      parameter.sub_(parameter.grad(), 1e-3);
      parameter.mutable_grad() = at::Tensor();
    }
    losses.push_back(loss.detach());
  }
  return losses;
}

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_TRUE(test::bitwise_equal(a[i], b[i])) << i << ":\n" << a[i] << "\n" << b[i];
  }
}

std::vector<at::Tensor> parameters_of(const Module& module) {
  std::vector<at::Tensor> parameters;
  for (const auto& parameter : module.parameters())
    parameters.push_back(parameter);
  return parameters;
}

class LowerStrategy : public Lower, public ::testing::WithParamInterface<const char*> {};

TEST_P(LowerStrategy, TrainsBitForBitAsTheModuleDoes) {
  auto model = make_model();
  auto lowered = lower(make_model(), GetParam());
  expect_equal(train(lowered, 5), train(model, 5));
  expect_equal(parameters_of(lowered), parameters_of(model));
}

INSTANTIATE_TEST_SUITE_P(
    Lower, LowerStrategy,
    ::testing::Values("", R"({"strategy": "none"})", R"({"strategy": "all"})",
                      R"({"strategy": "segments"})",
                      R"({"strategy": "ops", "ops": ["relu", "apply_dropout_mask"]})"));

// A compilation unit never frees a class, and many modules may share one.
TEST_F(Lower, AddsNothingToTheModulesCompilationUnits) {
  auto model = make_model();
  const auto num_functions = [&] {
    size_t count = 0;
    for (const auto& each : model.modules())
      count += each._ivalue()->compilation_unit()->get_functions().size();
    return count;
  };
  const auto before = num_functions();
  auto lowered = lower(model, R"({"strategy": "segments"})");
  train(lowered, 1);
  EXPECT_EQ(num_functions(), before);
}

// The lowered methods may call functions of the original units.
TEST_F(Lower, KeepsTheModulesCompilationUnitsAlive) {
  std::weak_ptr<torch::jit::CompilationUnit> unit;
  {
    auto lowered = [&] {
      auto model = make_model();
      const Module own("Own");  // the others share the tests' unit
      model.register_module("own", own);
      unit = own._ivalue()->compilation_unit();
      return lower(model, R"({"strategy": "segments"})");
    }();
    train(lowered, 1);
    EXPECT_FALSE(unit.expired());
  }
  EXPECT_TRUE(unit.expired());
}

TEST_F(Lower, ParametersAreThoseOfTheModule) {
  const auto model = make_model();
  const auto lowered = lower(model, R"({"strategy": "all"})");
  std::vector<std::string> names;
  for (const auto& named : lowered.named_parameters()) {
    names.push_back(named.name);
    EXPECT_EQ(named.name.find("__loweredModule__"), std::string::npos);
  }
  EXPECT_THAT(names, ElementsAre("first.weight", "first.bias", "second.weight", "second.bias"));
  const auto ours = parameters_of(lowered);
  const auto theirs = parameters_of(model);
  for (size_t i = 0; i < ours.size(); ++i) {
    EXPECT_TRUE(ours[i].is_same(theirs[i])) << names[i];
  }
}

TEST_F(Lower, TheOriginalModuleStillWorks) {
  auto model = make_model();
  const auto before = test::method_graph(model)->toString();
  auto lowered = lower(model);
  EXPECT_EQ(test::method_graph(model)->toString(), before);
  auto fresh = make_model();
  expect_equal(train(model, 2), train(fresh, 2));
}

TEST_F(Lower, ASavedModuleTrainsOnWhereItIsLoaded) {
  auto model = make_model();
  auto lowered = lower(make_model(), R"({"strategy": "all"})");
  train(model, 2);
  train(lowered, 2);
  std::stringstream file;
  lowered.save(file);
  auto loaded = torch::jit::load(file);
  expect_equal(parameters_of(loaded), parameters_of(model));
  expect_equal(train(loaded, 3), train(model, 3));
  expect_equal(parameters_of(loaded), parameters_of(model));
  EXPECT_THAT(report(loaded), HasSubstr(R"("strategy":"all")"));
}

TEST_F(Lower, DefaultArgumentsAreKept) {
  auto model = make_model();
  auto lowered = lower(model);
  model.eval();
  lowered.eval();
  const auto x = at::randn({5, 4});
  EXPECT_TRUE(test::bitwise_equal(lowered.forward({x}).toTensor(), model.forward({x}).toTensor()));
  EXPECT_TRUE(test::bitwise_equal(lowered.forward({x, 3.0}).toTensor(),
                                  model.forward({x, 3.0}).toTensor()));
  EXPECT_TRUE(test::bitwise_equal(lowered.forward({x}, {{"scale", 4.0}}).toTensor(),
                                  model.forward({x, 4.0}).toTensor()));
}

TEST_F(Lower, EvaluationIsAnotherSpecialization) {
  auto lowered = lower(make_model());
  const auto x = at::randn({5, 4});
  lowered.forward({x});
  lowered.eval();
  EXPECT_TRUE(
      test::bitwise_equal(lowered.forward({x}).toTensor(), lowered.forward({x}).toTensor()));
  lowered.train();
  lowered.forward({x});
  const auto json = nlohmann::json::parse(report(lowered));
  EXPECT_EQ(json["methods"][0]["specialisations"].size(), 2U);
}

TEST_F(Lower, SeveralMethodsCanBeLowered) {
  const auto model = make_model();
  auto lowered = lower(model, R"({"strategy": "all"})", {"encode", "forward"});
  const auto x = at::randn({5, 4});
  const auto expected =
      at::relu(at::linear(x, model.attr("first").toModule().attr("weight").toTensor(),
                          model.attr("first").toModule().attr("bias").toTensor()));
  EXPECT_TRUE(test::bitwise_equal(lowered.run_method("encode", x).toTensor(), expected));
  lowered.forward({x});
  const auto json = nlohmann::json::parse(report(lowered));
  std::vector<std::string> methods;
  for (const auto& method : json["methods"]) {
    methods.push_back(method["method"]);
    EXPECT_THAT(method["specialisations"], SizeIs(1));
  }
  EXPECT_THAT(methods, ::testing::UnorderedElementsAre("encode", "forward"));
}

TEST_F(Lower, TheReportSaysWhatIsSavedAndRecomputed) {
  auto lowered = lower(make_model(), R"({"strategy": "ops", "ops": ["relu"]})");
  auto method = nlohmann::json::parse(report(lowered))["methods"][0];
  EXPECT_EQ(method["method"], "forward");
  EXPECT_EQ(method["options"]["strategy"], "ops");
  EXPECT_THAT(method["specialisations"], IsEmpty());

  lowered.forward({at::randn({5, 4})}).toTensor().backward();
  method = nlohmann::json::parse(report(lowered))["methods"][0];
  ASSERT_THAT(method["specialisations"], SizeIs(1));
  const auto& regions = method["specialisations"][0]["regions"];
  ASSERT_THAT(regions, SizeIs(1));
  EXPECT_THAT(method["specialisations"][0]["breaks"], IsEmpty());
  ASSERT_THAT(regions[0]["variants"], SizeIs(1));
  EXPECT_GT(regions[0]["variants"][0]["forward_operators"], 0);
  EXPECT_GT(regions[0]["variants"][0]["stages"], 1);
}

TEST_F(Lower, InvalidOptionsAreRefused) {
  const auto model = make_model();
  for (const char* options : {"segments", R"({"strategy": "fast"})", R"({"9": null})",
                              R"({"strategy": "layers", "stride": 0})"}) {
    EXPECT_THAT([&] { lower(model, options); },
                ThrowsMessage<std::invalid_argument>(Not(HasSubstr("\n"))))
        << options;
  }
}

// A module that calls `inner` and adds to it.
Module make_outer(const Module& inner) {
  auto outer = test::make_module("Outer");
  outer.register_module("inner", inner);
  outer.define("def forward(self, x):\n    return self.inner.forward(x) + 1\n");
  return outer;
}

std::vector<std::string> attribute_names(const Module& module) {
  std::vector<std::string> names;
  for (const auto& attribute : module.named_attributes())
    names.push_back(attribute.name);
  return names;
}

TEST_F(Lower, MethodsThatAreNotNamedStayUnchanged) {
  const auto model = make_model();
  const auto lowered = lower(model);
  const auto x = at::randn({5, 4});
  EXPECT_TRUE(test::bitwise_equal(lowered.get_method("encode")({x}).toTensor(),
                                  model.get_method("encode")({x}).toTensor()));
  // Such a method reads the attributes of the lowered module.
  lowered.attr("first").toModule().setattr("weight", at::zeros({8, 4}));
  const auto bias = model.attr("first").toModule().attr("bias").toTensor();
  EXPECT_TRUE(test::bitwise_equal(lowered.get_method("encode")({x}).toTensor(),
                                  at::relu(bias).expand({5, 8})));
}

TEST_F(Lower, UnloweringRestoresTheModule) {
  auto lowered = lower(make_model(), R"({"strategy": "all"})");
  auto model = make_model();
  train(model, 2);
  train(lowered, 2);
  lowered.eval();
  model.eval();
  auto plain = unlower(lowered);
  EXPECT_FALSE(plain.is_training());
  EXPECT_EQ(attribute_names(plain), attribute_names(model));
  const auto x = at::randn({5, 4});
  const auto graph_as_before = test::method_graph(plain)->toString();
  EXPECT_THAT(graph_as_before, Not(HasSubstr("aten_recompute")));
  EXPECT_TRUE(test::bitwise_equal(plain.forward({x}).toTensor(), model.forward({x}).toTensor()));
  const auto ours = parameters_of(plain);
  const auto theirs = parameters_of(lowered);
  ASSERT_EQ(ours.size(), theirs.size());
  for (size_t i = 0; i < ours.size(); ++i)
    EXPECT_TRUE(ours[i].is_same(theirs[i])) << i;
}

TEST_F(Lower, UnloweringAModuleThatIsNotLoweredReturnsIt) {
  const auto model = make_model();
  EXPECT_EQ(unlower(model)._ivalue(), model._ivalue());
}

TEST_F(Lower, UnloweredModulesCanBeFrozen) {
  // If it is off, LibTorch leaves calls of submodules in a frozen graph, but removes the methods.
  torch::jit::setGraphExecutorOptimize(true);
  for (const auto& lowered : {lower(make_model()), make_outer(lower(make_model())),
                              make_outer(make_outer(lower(make_model())))}) {
    auto module = lowered;
    module.eval();
    const auto x = at::randn({5, 4});
    const auto expected = module.forward({x}).toTensor();
    const auto frozen = torch::jit::freeze(unlower(module));
    EXPECT_THAT(parameters_of(frozen), IsEmpty());
    EXPECT_TRUE(at::allclose(frozen.get_method("forward")({x}).toTensor(), expected));
    // unlower() does not change the given module.
    EXPECT_TRUE(test::bitwise_equal(module.forward({x}).toTensor(), expected));
  }
}

TEST_F(Lower, ALoweredModuleCanBeLoweredAgain) {
  auto twice = lower(lower(make_model(), R"({"strategy": "none"})"), R"({"strategy": "all"})");
  auto model = make_model();
  expect_equal(train(twice, 3), train(model, 3));
  EXPECT_THAT(report(twice), HasSubstr(R"("strategy":"all")"));

  auto outer = make_outer(make_model());
  const auto half = make_outer(lower(make_model()));
  auto whole = lower(half, R"({"strategy": "all"})");
  expect_equal(train(whole, 3), train(outer, 3));
  const auto json = nlohmann::json::parse(report(whole));
  const auto& regions = json["methods"][0]["specialisations"][0]["regions"];
  ASSERT_THAT(regions, SizeIs(1));
  EXPECT_GT(regions[0]["variants"][0]["recomputed"].size(), 0U);
  EXPECT_TRUE(parameters_of(whole)[0].is_same(parameters_of(half)[0]));
}

TEST_F(Lower, AMissingMethodIsAnErrorThatNamesIt) {
  EXPECT_THAT([&] { lower(make_model(), "", {"forwards"}); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("no method \"forwards\"")));
}

TEST_F(Lower, AReportNeedsALoweredModule) {
  EXPECT_THAT([&] { report(make_model()); },
              ThrowsMessage<std::invalid_argument>(HasSubstr("not a lowered module")));
}

TEST_F(Lower, ASecondRegionIsAnErrorWithFullgraph) {
  auto model = test::make_module("M");
  model.define(R"(
def forward(self, x):
    y = torch.tanh(x)
    print(1)
    return torch.relu(y)
)");
  auto lowered = lower(model, R"({"strategy": "all", "fullgraph": true})");
  EXPECT_THAT([&] { lowered.forward({at::randn({2}).requires_grad_()}); },
              ThrowsMessage<std::exception>(AllOf(HasSubstr("2 regions instead of one"),
                                                  HasSubstr("prim::Print has side effects"))));
}

// The interpreter's traceback names the call, and no operator of the method.
TEST_F(Lower, AnUnreachableBudgetIsNotBlamedOnAnOperator) {
  auto lowered =
      make_outer(lower(make_model(), R"({"strategy": "budget", "memory_budget": "100"})"));
  EXPECT_THAT(
      [&] {
        lowered.forward({at::randn({5, 4})});
      },
      ThrowsMessage<std::exception>(
          AllOf(HasSubstr("\nRuntimeError: aten_recompute: memory_budget: the peak cannot be "
                          "kept under 100 B; the smallest that can be reached is "),
                Not(HasSubstr("torch.")))));
}

TEST_F(Lower, AnOperatorsErrorNamesItsSourceLine) {
  auto lowered = lower(make_model());
  EXPECT_THAT(
      [&] {
        lowered.forward({at::randn({5, 3})});
      },
      ThrowsMessage<std::exception>(
          AllOf(HasSubstr("torch.linear"), Not(HasSubstr("aten_recompute: ")))));
}

// Restores a module from its own saved state, in which `format` replaces the format's name.
void restore_with_format(const Module& lowered, const std::string& format) {
  const auto wrapper = lowered.attr("__loweredModule__").toModule();
  const auto state = wrapper.get_method("__getstate__")({}).toTuple();
  auto elements = state->elements().vec();
  for (auto& element : elements) {
    if (element.isTuple() && element.toTupleRef().elements().size() == 2)
      element = c10::ivalue::Tuple::create({element.toTupleRef().elements()[0], format});
  }
  wrapper.get_method("__setstate__")({c10::ivalue::Tuple::create(std::move(elements))});
}

TEST_F(Lower, AFileOfANewerFormatIsRefused) {
  const auto lowered = lower(make_model());
  EXPECT_NO_THROW(restore_with_format(lowered, "aten_recompute/1"));
  EXPECT_THAT(
      [&] { restore_with_format(lowered, "aten_recompute/1000"); },
      ThrowsMessage<std::exception>(HasSubstr("lowered by a newer aten_recompute (format 1000")));
  EXPECT_THAT([&] { restore_with_format(lowered, "something else"); },
              ThrowsMessage<std::exception>(
                  HasSubstr("not a module lowered by aten_recompute: format \"something else\"")));
}

}  // namespace
}  // namespace aten_recompute
