#include "runtime/sliced.h"

#include <ATen/Functions.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <memory>

#include "ir/symbols.h"
#include "runtime/program.h"
#include "runtime/undefined_gradients.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using Numbers = std::vector<int64_t>;

// What the attributes of an aten_recompute::sliced say (runtime/sliced.h).
struct Division {
  int64_t slices = 0;
  Numbers operand_rows{};
  Numbers result_rows{};
  Numbers broadcasts{};
  Numbers gradients{};
};

// Returns a graph that runs this stretch in slices.
std::shared_ptr<torch::jit::Graph> divide(const std::string& stretch, const Division& division) {
  const auto inner = test::parse(stretch);
  auto graph = std::make_shared<torch::jit::Graph>();
  std::vector<torch::jit::Value*> operands;
  for (const auto* input : inner->inputs())
    operands.push_back(graph->addInput()->setType(input->type()));
  auto* node =
      graph->insertNode(graph->create(symbols::kSliced, operands, division.result_rows.size()));
  node->g_(c10::attr::Subgraph, inner)
      ->i_(symbols::kSlices, division.slices)
      ->is_(symbols::kOperandRows, division.operand_rows)
      ->is_(symbols::kResultRows, division.result_rows)
      ->is_(symbols::kBroadcasts, division.broadcasts);
  if (!division.gradients.empty())
    node->is_(kGradientOperands, division.gradients);
  for (size_t i = 0; i < inner->outputs().size(); ++i) {
    node->output(i)->setType(inner->outputs()[i]->type());
    graph->registerOutput(node->output(i));
  }
  return graph;
}

class SlicedOperator : public test::TorchTest {
 protected:
  // Runs a stretch in slices, and counts how often its probe() runs.
  std::vector<c10::IValue> run(const std::string& stretch, const Division& division,
                               const std::vector<c10::IValue>& inputs) {
    num_runs_ = 0;
    const test::ScopedProbe probe([this] { ++num_runs_; });
    return test::run_graph(divide(stretch, division), inputs);
  }

  int num_runs_ = 0;
};

const char* const kProbe = R"(
graph(%x : Tensor):
  %y : Tensor = aten_recompute_test::probe(%x)
  return (%y)
)";

TEST_F(SlicedOperator, RunsOncePerSlice) {
  const auto x = at::randn({10, 3});
  for (const int64_t dimension : {0, 1}) {
    const auto operand = x.transpose(0, dimension);
    const auto y = run(kProbe, {4, {dimension}, {dimension}}, {operand})[0].toTensor();
    EXPECT_TRUE(test::bitwise_equal(y, operand));
    EXPECT_EQ(num_runs_, 4);
  }
}

// A slice has two rows, or one where there are at most three slices.
TEST_F(SlicedOperator, FewRowsMakeFewerSlices) {
  const auto runs = [this](int64_t rows, int64_t slices) {
    const auto x = at::randn({rows, 3});
    EXPECT_TRUE(test::bitwise_equal(run(kProbe, {slices, {0}, {0}}, {x})[0].toTensor(), x));
    return num_runs_;
  };
  EXPECT_EQ(runs(9, 5), 4);
  EXPECT_EQ(runs(3, 5), 1);
  EXPECT_EQ(runs(3, 3), 3);
  EXPECT_EQ(runs(2, 3), 2);
  EXPECT_EQ(runs(1, 3), 1);
}

TEST_F(SlicedOperator, OperandsWithOtherNumbersOfRowsRunAsAWhole) {
  const auto* stretch = R"(
graph(%x : Tensor, %y : Tensor):
  %z : Tensor = aten::mul(%x, %y)
  %r : Tensor = aten_recompute_test::probe(%z)
  return (%r)
)";
  const auto x = at::randn({6, 3});
  const auto y = at::randn({6, 3});
  const Division division{3, {0, 0}, {0}};
  EXPECT_TRUE(test::bitwise_equal(run(stretch, division, {x, y})[0].toTensor(), x * y));
  EXPECT_EQ(num_runs_, 3);
  const auto one = at::randn({1, 3});
  EXPECT_TRUE(test::bitwise_equal(run(stretch, division, {x, one})[0].toTensor(), x * one));
  EXPECT_EQ(num_runs_, 1);
}

// Operands that were seen to broadcast along the rows may have rows in a later call.
TEST_F(SlicedOperator, AnOperandThatDoesNotBroadcastRunsAsAWhole) {
  const auto* stretch = R"(
graph(%x : Tensor, %a : Tensor, %b : Tensor, %c : Tensor):
  %1 : Tensor = aten::mul(%x, %a)
  %2 : Tensor = aten::mul(%1, %b)
  %3 : Tensor = aten::mul(%2, %c)
  %r : Tensor = aten_recompute_test::probe(%3)
  return (%r)
)";
  const Division division{3, {0, kWhole, kWhole, kWhole}, {0}, {1, 0, 2, 0, 3, 0}};
  const auto x = at::randn({6, 3});
  for (int with_rows = 0; with_rows <= 3; ++with_rows) {
    std::vector<c10::IValue> inputs{x};
    auto expected = x;
    for (int i = 1; i <= 3; ++i) {
      const auto operand = at::randn({i == with_rows ? 6 : 1, 3});
      expected = expected * operand;
      inputs.emplace_back(operand);
    }
    EXPECT_TRUE(test::bitwise_equal(run(stretch, division, inputs)[0].toTensor(), expected));
    EXPECT_EQ(num_runs_, with_rows == 0 ? 3 : 1) << with_rows;
  }
}

TEST_F(SlicedOperator, ASliceReadsItsOwnNumberOfRows) {
  const auto* stretch = R"(
graph(%rows : int, %x : Tensor):
  %p : Tensor = aten_recompute_test::probe(%x)
  %y : Tensor = aten::mul(%p, %rows)
  return (%y)
)";
  const Division division{2, {kRowCount, 0}, {0}};
  const auto y = run(stretch, division, {5, at::ones({5})})[0].toTensor();
  EXPECT_TRUE(test::bitwise_equal(y, at::tensor({3.F, 3.F, 3.F, 2.F, 2.F})));
  // An int that is no number of rows is that of the whole.
  const auto whole = run(stretch, division, {4, at::ones({5})})[0].toTensor();
  EXPECT_TRUE(test::bitwise_equal(whole, at::full({5}, 4.F)));
  EXPECT_EQ(num_runs_, 1);
}

TEST_F(SlicedOperator, ResultsArePutTogetherAddedUpOrAlike) {
  const auto* stretch = R"(
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %one : int = prim::Constant[value=1]()
  %p : Tensor = aten_recompute_test::probe(%x)
  %rows : Tensor = aten::mul(%p, %one)
  %sum : Tensor = aten::sum(%p, %none)
  %width : int = aten::size(%p, %one)
  return (%sum, %width, %rows)
)";
  const auto x = at::arange(30, at::kFloat).view({10, 3});
  const auto results = run(stretch, {5, {0}, {kSummed, kWhole, 0}}, {x});
  EXPECT_EQ(results[0].toTensor().item<float>(), 435);
  EXPECT_EQ(results[1].toInt(), 3);
  EXPECT_TRUE(test::bitwise_equal(results[2].toTensor(), x));
  EXPECT_EQ(num_runs_, 5);
}

// 256 + 1 + 1 is 256 in bfloat16, whose sums of slices are added up in single precision.
TEST_F(SlicedOperator, SumsInReducedPrecisionAreRoundedOnce) {
  const auto* stretch = R"(
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %p : Tensor = aten_recompute_test::probe(%x)
  %sum : Tensor = aten::sum(%p, %none)
  return (%sum)
)";
  const auto x = at::tensor({256.F, 1.F, 1.F}).to(at::kBFloat16);
  const auto sum = run(stretch, {3, {0}, {kSummed}}, {x})[0].toTensor();
  EXPECT_EQ(num_runs_, 3);
  EXPECT_EQ(sum.scalar_type(), at::kBFloat16);
  EXPECT_EQ(sum.item<float>(), 258);
}

TEST_F(SlicedOperator, SizesThatDoNotFitASliceRunAsAWhole) {
  const auto* stretch = R"(
graph(%x : Tensor):
  %rows : int = prim::Constant[value=6]()
  %half : int = prim::Constant[value=2]()
  %p : Tensor = aten_recompute_test::probe(%x)
  %sizes : int[] = prim::ListConstruct(%rows, %half)
  %y : Tensor = aten::view(%p, %sizes)
  return (%y)
)";
  const auto x = at::randn({6, 2});
  EXPECT_TRUE(test::bitwise_equal(run(stretch, {3, {0}, {0}}, {x})[0].toTensor(), x));
  EXPECT_EQ(num_runs_, 2);  // the slice that failed, and the whole
}

// The second dimension of the result is the rows; as a whole, it lies in memory column by column.
TEST_F(SlicedOperator, ResultsLieInMemoryAsThoseOfTheWhole) {
  const auto* stretch = R"(
graph(%x : Tensor):
  %t : Tensor = aten::t(%x)
  %y : Tensor = aten::relu(%t)
  return (%y)
)";
  const auto x = at::randn({8, 3});
  const auto y = run(stretch, {4, {0}, {1}}, {x})[0].toTensor();
  const auto expected = at::relu(x.t());
  EXPECT_TRUE(test::bitwise_equal(y, expected));
  EXPECT_EQ(y.strides(), expected.strides());
}

// Counts calls of aten_recompute_test::probe() on this thread; on meta tensors, no ScopedProbe
// runs.
class CallsOfProbe {
 public:
  CallsOfProbe()
      : handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback([](const at::RecordFunction& function)
                                           -> std::unique_ptr<at::ObserverContext> {
              if (std::string(function.name()) == "aten_recompute_test::probe")
                ++num_calls;
              return nullptr;
            }).scopes({at::RecordScope::FUNCTION}))) {
    num_calls = 0;
  }
  ~CallsOfProbe() { at::removeCallback(handle_); }
  CallsOfProbe(const CallsOfProbe&) = delete;
  CallsOfProbe& operator=(const CallsOfProbe&) = delete;

  static thread_local int num_calls;

 private:
  at::CallbackHandle handle_;
};

thread_local int CallsOfProbe::num_calls = 0;

// Three slices show the memory that all of them need: the first, the second and the last.
TEST_F(SlicedOperator, OnMetaTensorsThreeSlicesRun) {
  const auto meta = at::TensorOptions().device(at::kMeta);
  for (const int64_t dimension : {0, 1}) {
    for (const int64_t slices : {2, 3, 4, 5}) {
      const CallsOfProbe calls;
      const auto y = run(kProbe, {slices, {dimension}, {dimension}}, {at::empty({10, 10}, meta)});
      EXPECT_THAT(y[0].toTensor().sizes(), ElementsAre(10, 10));
      EXPECT_EQ(CallsOfProbe::num_calls, std::min<int64_t>(slices, 3)) << slices;
    }
  }
}

const char* const kTwoGradients = R"(
graph(%da : Tensor, %db : Tensor, %x : Tensor):
  %p : Tensor = aten_recompute_test::probe(%x)
  %dx : Tensor = aten::mul(%da, %p)
  %dy : Tensor = aten::mul(%db, %p)
  return (%dx, %dy)
)";
const Division kOfTwoGradients{3, {0, 0, 0}, {0, 0}, {}, {0, 1}};

TEST_F(SlicedOperator, WhatDependsOnUndefinedGradientsIsLeftOut) {
  const auto x = at::randn({6, 2});
  const auto db = at::randn({6, 2});
  const auto results = run(kTwoGradients, kOfTwoGradients, {c10::IValue(), db, x});
  EXPECT_EQ(num_runs_, 3);
  EXPECT_TRUE(results[0].isNone());
  EXPECT_TRUE(test::bitwise_equal(results[1].toTensor(), db * x));
}

TEST_F(SlicedOperator, ABackwardKnowsWhatItsStretchesLeaveOut) {
  const Program backward(divide(kTwoGradients, kOfTwoGradients));
  const auto found = find_undefined_gradients(backward, {0, 1}, {false, true});
  EXPECT_THAT(found.undefined, ElementsAre(true, false));
  EXPECT_THAT(found.skip, ElementsAre(false));
  EXPECT_THAT(found.zeros, ElementsAre(false, false));
}

}  // namespace
}  // namespace aten_recompute
