#include <aten_recompute/trace_and_lower.h>

#include <aten_recompute/aten_recompute.h>
#include <torch/torch.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aten_recompute {
namespace {

using ::testing::HasSubstr;
using Inputs = std::vector<c10::IValue>;
using torch::Tensor;

constexpr const char* kBudget =
    R"({"strategy": "budget", "cost_model": "flops", "memory_budget": 0.6, "unreachable": "leanest"})";

struct NetImpl : torch::nn::Module {
  NetImpl()
      : first(register_module("first", torch::nn::Linear(8, 16))),
        norm(register_module("norm", torch::nn::BatchNorm1d(16))),
        inner(register_module("inner",
                              torch::nn::Sequential(torch::nn::Linear(16, 16),
                                                    torch::nn::ReLU(torch::nn::ReLUOptions(true)),
                                                    torch::nn::Linear(16, 16)))),
        dropout(register_module("dropout", torch::nn::Dropout(0.3))),
        last(register_module("last", torch::nn::Linear(16, 4))) {}

  Tensor forward(const Tensor& x) {
    auto y = torch::tanh(norm(first(x)));
    y = y + dropout(inner->forward(y));
    return last(torch::sigmoid(y));
  }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Sequential inner;
  torch::nn::Dropout dropout;
  torch::nn::Linear last;
};
TORCH_MODULE(Net);

Net make_net(bool is_double = false) {
  torch::manual_seed(0);
  Net net;
  if (is_double)
    net->to(torch::kDouble);
  return net;
}

TracedFunction trace(Net net, const Tensor& x, const std::string& options = kBudget) {
  return trace_and_lower(
      [net](Inputs inputs) mutable -> c10::IValue { return net->forward(inputs[0].toTensor()); },
      {x}, options, {net.ptr()});
}

void expect_equal_tensors(const std::vector<Tensor>& a, const std::vector<Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].defined(), b[i].defined()) << i;
    if (a[i].defined()) {
      EXPECT_TRUE(torch::equal(a[i], b[i])) << i;
    }
  }
}

std::vector<Tensor> gradients(const Net& net) {
  std::vector<Tensor> all;
  for (const auto& parameter : net->parameters())
    all.push_back(parameter.grad());
  return all;
}

// Runs a step of the eager network and of the traced one, and expects the same of both.
void expect_same_step(Net& eager, Net& net, const TracedFunction& traced, const Tensor& x) {
  for (auto* each : {&eager, &net})
    (*each)->zero_grad();
  torch::manual_seed(7);
  const auto expected = eager->forward(x);
  expected.square().sum().backward();
  torch::manual_seed(7);
  const auto result = traced({x}).toTensor();
  result.square().sum().backward();
  EXPECT_TRUE(torch::equal(result, expected));
  expect_equal_tensors(gradients(net), gradients(eager));
  expect_equal_tensors(net->buffers(), eager->buffers());
}

TEST(TraceAndLower, TrainsTheParametersOfTheNetwork) {
  auto eager = make_net();
  auto net = make_net();
  const auto x = torch::randn({32, 8});
  const auto traced = trace(net, x);
  expect_equal_tensors(net->buffers(), eager->buffers());  // the trace leaves no trace
  torch::optim::SGD of_eager(eager->parameters(), 0.1);
  torch::optim::SGD of_net(net->parameters(), 0.1);
  for (int step = 0; step < 4; ++step) {
    expect_same_step(eager, net, traced, x);
    of_eager.step();
    of_net.step();
  }
  EXPECT_EQ(traced.modules().size(), 1U);
  EXPECT_THAT(report(traced.modules()[0]), HasSubstr("_recomputed"));
}

TEST(TraceAndLower, OtherShapesModesAndTypesAreRight) {
  auto eager = make_net();
  auto net = make_net();
  const auto traced = trace(net, torch::randn({32, 8}));
  expect_same_step(eager, net, traced, torch::randn({5, 8}));
  EXPECT_EQ(traced.modules().size(), 1U) << "nothing in it depends on the size of the batch";
  eager->eval();
  net->eval();
  expect_same_step(eager, net, traced, torch::randn({32, 8}));
  eager->train();
  net->train();
  expect_same_step(eager, net, traced, torch::randn({32, 8}));
  eager->to(torch::kDouble);
  net->to(torch::kDouble);
  expect_same_step(eager, net, traced, torch::randn({16, 8}, torch::kDouble));
}

TEST(TraceAndLower, SizesThatCppReadsAreThoseOfEachCall) {
  auto weight = torch::randn({6, 3}, torch::requires_grad());
  const auto fn = [&](Inputs inputs) -> c10::IValue {
    const auto x = inputs[0].toTensor();
    return torch::matmul(x.view({x.size(0) / 2, 2, 6}), inputs[1].toTensor()).mean(0);
  };
  const auto traced = trace_and_lower(fn, {torch::randn({8, 6}), weight}, kBudget);
  for (int64_t rows : {8, 16, 4}) {
    const auto x = torch::randn({rows, 6});
    EXPECT_TRUE(torch::equal(traced({x, weight}).toTensor(), fn({x, weight}).toTensor())) << rows;
  }
}

TEST(TraceAndLower, CallsWithoutGradientsAndInputsWithThem) {
  auto eager = make_net();
  auto net = make_net();
  const auto traced = trace(net, torch::randn({8, 8}));
  {
    const torch::NoGradGuard guard;
    net->eval();
    eager->eval();
    const auto x = torch::randn({8, 8});
    const auto y = traced({x}).toTensor();
    EXPECT_FALSE(y.requires_grad());
    EXPECT_TRUE(torch::equal(y, eager->forward(x)));
    net->train();
    eager->train();
  }
  auto x = torch::randn({8, 8});
  std::vector<Tensor> of_inputs;
  for (const bool is_traced : {false, true}) {
    const auto input = x.clone().requires_grad_();
    torch::manual_seed(3);
    (is_traced ? traced({input}).toTensor() : eager->forward(input)).square().sum().backward();
    of_inputs.push_back(input.grad());
  }
  EXPECT_TRUE(torch::equal(of_inputs[0], of_inputs[1]));
}

TEST(TraceAndLower, SeveralInputsAndResults) {
  torch::nn::Linear a(4, 4), b(4, 4);
  auto fn = [a, b](Inputs inputs) mutable -> c10::IValue {
    const auto pair = inputs[0].toTensorVector();
    const auto other = inputs[1].toTupleRef().elements();
    const auto y = torch::tanh(a(pair[0])) + pair[1] * other[0].toTensor();
    auto z = y * 2;
    torch::relu_(z);
    return c10::ivalue::Tuple::create({y, c10::List<Tensor>({b(y), z})});
  };
  const auto make = [] {
    return Inputs{c10::List<Tensor>({torch::ones({3, 4}), torch::full({3, 4}, 2.0)}),
                  c10::ivalue::Tuple::create({c10::IValue(torch::full({3, 4}, 0.5))})};
  };
  const auto traced = trace_and_lower(fn, make(), kBudget, {a.ptr(), b.ptr()});
  const auto flat = [](const c10::IValue& value) {
    const auto elements = value.toTupleRef().elements();
    auto all = elements[1].toTensorVector();
    all.push_back(elements[0].toTensor());
    return all;
  };
  const auto expected = flat(fn(make()));
  const auto result = flat(traced(make()));
  expect_equal_tensors(result, expected);
  const std::vector<Tensor> parameters{a->weight, a->bias, b->weight, b->bias};
  const auto loss = [](const std::vector<Tensor>& all) -> Tensor {
    return all[0].sum() + all[1].square().sum() + all[2].sum();
  };
  expect_equal_tensors(torch::autograd::grad({loss(result)}, parameters),
                       torch::autograd::grad({loss(expected)}, parameters));
}

struct TiedImpl : torch::nn::Module {
  TiedImpl()
      : a(register_module("a", torch::nn::Linear(4, 4))),
        b(register_module("b", torch::nn::Linear(torch::nn::LinearOptions(4, 4).bias(false)))) {}

  Tensor forward(const Tensor& x) {
    const auto y = torch::tanh(a(x));
    return torch::linear(torch::sigmoid(b(y)), a->weight);  // one weight, twice
  }

  torch::nn::Linear a, b;
};
TORCH_MODULE(Tied);

TEST(TraceAndLower, TiedParametersAndModulesThatAreReplaced) {
  Tied net;
  const auto traced = trace_and_lower(
      [net](Inputs inputs) mutable -> c10::IValue { return net->forward(inputs[0].toTensor()); },
      {torch::randn({3, 4})}, kBudget, {net.ptr()});
  const auto x = torch::randn({3, 4});
  const auto compare = [&] {
    const auto expected = net->forward(x);
    const auto result = traced({x}).toTensor();
    EXPECT_TRUE(torch::equal(result, expected));
    expect_equal_tensors(torch::autograd::grad({result.square().sum()}, net->parameters()),
                         torch::autograd::grad({expected.square().sum()}, net->parameters()));
  };
  compare();
  net->a = net->replace_module("a", torch::nn::Linear(4, 4));
  compare();
  EXPECT_EQ(traced.modules().size(), 1U) << "a replaced parameter needs no other plan";
  net->b = net->replace_module("b", torch::nn::Linear(4, 4));  // has a bias
  compare();
}

TEST(TraceAndLower, SecondDerivativesAndFloat64) {
  auto eager = make_net(true);
  auto net = make_net(true);
  const auto x = torch::randn({8, 8}, torch::kDouble);
  const auto traced = trace(net, x);
  const auto second = [&](const Net& of, const Tensor& y) {
    const auto first = torch::autograd::grad({y.square().sum()}, of->parameters(), {},
                                             /*retain_graph=*/true, /*create_graph=*/true);
    auto sum = torch::zeros({}, torch::kDouble);
    for (const auto& gradient : first)
      sum = sum + gradient.square().sum();
    return torch::autograd::grad({sum}, of->parameters(), {}, {}, false, /*allow_unused=*/true);
  };
  torch::manual_seed(5);
  const auto expected = second(eager, eager->forward(x));
  torch::manual_seed(5);
  const auto result = second(net, traced({x}).toTensor());
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(result[i].defined(), expected[i].defined());
    if (expected[i].defined()) {
      EXPECT_TRUE(torch::allclose(result[i], expected[i], 1e-9, 1e-12)) << i;
    }
  }
}

TEST(TraceAndLower, TwoThreadsCallOneFunction) {
  auto net = make_net();
  net->eval();
  const auto traced = trace(net, torch::randn({4, 8}));
  std::vector<std::vector<Tensor>> results(2), expected(2);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 2; ++t) {
    threads.emplace_back([&, t] {
      for (int64_t rows = 1; rows < 12; ++rows) {
        const auto x = torch::full({rows, 8}, static_cast<double>(t) - 0.3);
        const auto y = traced({x}).toTensor();
        results[t].push_back(y.detach());
        results[t].push_back(torch::autograd::grad({y.square().sum()}, net->parameters())[0]);
        const auto other = net->forward(x);
        expected[t].push_back(other.detach());
        expected[t].push_back(torch::autograd::grad({other.square().sum()}, net->parameters())[0]);
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  for (size_t t = 0; t < 2; ++t)
    expect_equal_tensors(results[t], expected[t]);
}

// Returns the message of what tracing this function throws.
template <class Error>
std::string error_of(const TracedFunction::Function& fn, const std::string& options = kBudget,
                     std::vector<std::shared_ptr<torch::nn::Module>> modules = {}) {
  try {
    trace_and_lower(fn, {torch::ones({2, 4})}, options, std::move(modules));
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing is thrown";
  return "";
}

TEST(TraceAndLower, ErrorsAreOneLine) {
  const auto identity = [](Inputs inputs) -> c10::IValue { return inputs[0].toTensor() * 2; };
  torch::nn::Linear layer(4, 4);
  const auto of_layer = [layer](Inputs inputs) mutable -> c10::IValue {
    return layer(inputs[0].toTensor());
  };
  EXPECT_THAT(error_of<std::invalid_argument>(of_layer),
              HasSubstr("neither an input nor a parameter of `modules`"));
  EXPECT_THAT(error_of<std::invalid_argument>({}), HasSubstr("the function is empty"));
  EXPECT_THAT(error_of<std::invalid_argument>(identity, kBudget, {nullptr}),
              HasSubstr("a module is null"));
  EXPECT_THAT(error_of<std::invalid_argument>(identity, R"({"strategy": "fast"})"),
              HasSubstr("fast"));
  EXPECT_THAT(
      error_of<std::invalid_argument>([](Inputs /*inputs*/) -> c10::IValue { return int64_t{3}; }),
      HasSubstr("the function cannot be traced"));
  const auto without_gradients = error_of<std::invalid_argument>(
      [layer](Inputs inputs) mutable -> c10::IValue {
        const torch::NoGradGuard guard;
        return layer(inputs[0].toTensor());
      },
      kBudget, {layer.ptr()});
  EXPECT_THAT(without_gradients, HasSubstr("switches gradients off"));
  EXPECT_EQ(without_gradients.find('\n'), std::string::npos);
  EXPECT_EQ(error_of<std::logic_error>(
                [](Inputs /*inputs*/) -> c10::IValue { throw std::logic_error("mine"); }),
            "mine");
  // Nothing of a trace that failed is left.
  EXPECT_TRUE(torch::equal(trace_and_lower(of_layer, {torch::ones({2, 4})}, kBudget,
                                           {layer.ptr()})({torch::ones({2, 4})})
                               .toTensor(),
                           layer(torch::ones({2, 4}))));
}

TEST(TraceAndLower, WarnsWhereTheFunctionReadsAValueOfATensor) {
  testing::internal::CaptureStderr();
  const auto traced = trace_and_lower(
      [](Inputs inputs) -> c10::IValue {
        const auto x = inputs[0].toTensor();
        return x.sum().item<float>() > 0 ? x * 2 : x * 3;
      },
      {torch::ones({2})}, kBudget);
  const auto log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("reads a value of a tensor (aten::item)"));
  EXPECT_TRUE(torch::equal(traced({-torch::ones({2})}).toTensor(), torch::full({2}, -2.0)))
      << "the branch is that of the first call";
}

}  // namespace
}  // namespace aten_recompute
