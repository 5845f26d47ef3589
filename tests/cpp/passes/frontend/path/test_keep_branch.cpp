#include "passes/frontend/path/keep_branch.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/recorded_path.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_nodes;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::Module;

class KeepBranch : public test::TorchTest {};

Module define_for_keep_branch(const std::string& source) {
  auto module = test::make_module("M");
  module.register_parameter("weight", at::randn({3}), false);
  module.define(source);
  return module;
}

// Records a path in which every `if` of the method that can be kept is kept.
RecordedPath record_with_branches(const Module& module, const std::vector<c10::IValue>& inputs) {
  return test::record(module, inputs, {0, 1, 2, 3});
}

size_t num_branches(const RecordedPath& path) {
  return find_nodes(*path.graph, "aten_recompute::branch").size();
}

void expect_same(const RecordedPath& path, const Module& module, const at::Tensor& x) {
  const auto ours = test::run_graph(path.graph, {module._ivalue(), x}).at(0).toTensor();
  auto method = module;
  EXPECT_TRUE(test::bitwise_equal(ours, method.forward({x}).toTensor()));
}

TEST_F(KeepBranch, ThePathHoldsForBothAnswers) {
  const auto module = define_for_keep_branch(R"(
def forward(self, x):
    n = x.size(0)
    y = torch.relu(x)
    if bool(x.sum() > 0):
        y = y * self.weight + n
    else:
        x = x - 1
    return x + y
)");
  const auto path = record_with_branches(module, {at::ones({2, 3})});
  EXPECT_EQ(num_branches(path), 1);
  EXPECT_THAT(find_nodes(*path.graph, "aten_recompute::check_path"), IsEmpty());
  expect_same(path, module, at::ones({4, 3}));
  expect_same(path, module, -at::ones({4, 3}));
}

TEST_F(KeepBranch, EachUseOfATensorIsAnOperand) {
  const auto module = define_for_keep_branch(R"(
def forward(self, x):
    if bool(x.sum() > 0):
        y = x * x + x
    else:
        y = x
    return y
)");
  const auto path = record_with_branches(module, {at::ones({3})});
  const auto branch = find_nodes(*path.graph, "aten_recompute::branch").at(0);
  EXPECT_THAT(branch->inputs(), SizeIs(5));  // the condition and four uses of x
}

TEST_F(KeepBranch, NumbersAndConditionsMayBeResults) {
  const auto module = define_for_keep_branch(R"(
def forward(self, x):
    n = 1
    if bool(x.sum() > 0):
        n = x.size(0)
        again = bool(x.max() > 1)
    else:
        again = False
    if again:
        x = x * n
    return x
)");
  const auto path = record_with_branches(module, {at::ones({2})});
  EXPECT_EQ(num_branches(path), 2);
  for (const double value : {-1.0, 1.0, 2.0})
    expect_same(path, module, at::full({3}, value));
}

TEST_F(KeepBranch, ListsOfTensorsAreRead) {
  const auto module = define_for_keep_branch(R"(
def forward(self, x):
    states = [x * 2, x * 3]
    if bool(x.sum() > 0):
        y = states[-1]
    else:
        y = torch.stack(states).sum(0)
    return y
)");
  const auto path = record_with_branches(module, {at::ones({2})});
  EXPECT_EQ(num_branches(path), 1);
  expect_same(path, module, at::ones({3}));
  expect_same(path, module, -at::ones({3}));
}

// ---- what is decided instead ----

void expect_decided(const std::string& body) {
  const auto module = define_for_keep_branch("\ndef forward(self, x):\n" + body);
  const auto path = record_with_branches(module, {at::ones({3})});
  EXPECT_EQ(num_branches(path), 0) << body;
  EXPECT_THAT(find_nodes(*path.graph, "aten_recompute::check_path"), SizeIs(1)) << body;
  expect_same(path, module, at::ones({3}));
}

TEST_F(KeepBranch, ABranchWithEffectsIsDecided) {
  expect_decided(R"(
    seen = [x]
    if bool(x.sum() > 0):
        seen.append(x * 2)
    return torch.stack(seen)
)");
  expect_decided(R"(
    y = x * 2
    if bool(x.sum() > 0):
        y.add_(1)
        z = y * 2
    else:
        z = y
    return y + z
)");
  expect_decided(R"(
    if bool(x.sum() > 0):
        y = torch.dropout(x, 0., True)
    else:
        y = x * 2
    return y
)");
}

TEST_F(KeepBranch, AResultThatIsAnOperandAndIsChangedIsDecided) {
  expect_decided(R"(
    x = x * 2
    if bool(x.sum() > 0):
        y = x
    else:
        y = x * 3
    y.add_(1)
    return x + y
)");
}

TEST_F(KeepBranch, ALoopInABranchIsDecided) {
  expect_decided(R"(
    if bool(x.sum() > 0):
        y = x
        for i in range(3):
            y = y * 2
    else:
        y = x
    return y
)");
}

TEST_F(KeepBranch, AConditionThatIsNoTensorsIsDecided) {
  const auto module = define_for_keep_branch(R"(
def forward(self, x):
    if x.dim() > 1:
        return x * 2
    return x
)");
  const auto path = record_with_branches(module, {at::ones({3})});
  EXPECT_EQ(num_branches(path), 0);
}

}  // namespace
}  // namespace aten_recompute
