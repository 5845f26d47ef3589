#include "passes/frontend/path/path_guard.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/frontend/rewrites/inline_modules.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_nodes;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::Module;

class PathGuardTest : public test::TorchTest {};

struct Guarded {
  RecordedPath path;
  PathGuard guard;
};

Guarded guard_of(const Module& module, const std::vector<c10::IValue>& inputs) {
  auto graph = test::method_graph(module);
  inline_modules(graph);
  auto path = record_path(graph, module._ivalue(), inputs);
  PathGuard guard(path);
  path.graph->lint();
  return {std::move(path), std::move(guard)};
}

Module define_for_path_guard(const std::string& source) {
  auto module = test::make_module("M");
  module.define(source);
  return module;
}

TEST_F(PathGuardTest, QuestionsAboutInputsAreAnsweredBeforeTheCall) {
  const auto module = define_for_path_guard(R"(
def forward(self, d: Dict[str, Tensor], n: int):
    x = d["x"]
    if x.size(0) * n > 10:
        x = x * 2
    return x
)");
  const auto dict = [](int64_t rows) {
    c10::Dict<std::string, at::Tensor> d;
    d.insert("x", at::ones({rows}));
    return d;
  };
  const auto guarded = guard_of(module, {dict(2), 3});
  EXPECT_THAT(find_nodes(*guarded.path.graph, "aten_recompute::check_path"), IsEmpty());
  const auto holds = [&](int64_t rows, int64_t n) {
    return guarded.guard.holds(module._ivalue(), {dict(rows), n});
  };
  EXPECT_TRUE(holds(2, 3));
  EXPECT_TRUE(holds(5, 2));
  EXPECT_FALSE(holds(5, 3));
}

TEST_F(PathGuardTest, QuestionsAboutIntermediateTensorsStayInTheGraph) {
  const auto module = define_for_path_guard(R"(
def forward(self, x):
    y = torch.cat([x, x])
    if y.size(0) > 10:
        y = y * 2
    return y
)");
  const auto guarded = guard_of(module, {at::ones({2})});
  EXPECT_THAT(find_nodes(*guarded.path.graph, "aten_recompute::check_path"), SizeIs(1));
  EXPECT_TRUE(guarded.guard.holds(module._ivalue(), {at::ones({9})}));
}

TEST_F(PathGuardTest, StructureAndDefaultTypeMatter) {
  const auto module = define_for_path_guard(R"(
def forward(self, x, m: Optional[Tensor]):
    return x if m is None else x * m
)");
  const auto x = at::ones({2});
  const auto guarded = guard_of(module, {x, c10::IValue()});
  EXPECT_TRUE(guarded.guard.holds(module._ivalue(), {x, c10::IValue()}));
  EXPECT_FALSE(guarded.guard.holds(module._ivalue(), {x, x}));
  EXPECT_FALSE(guarded.guard.holds(module._ivalue(), {at::ones({2, 2}), c10::IValue()}));
}

TEST_F(PathGuardTest, TheGradModeMattersWhereItIsAskedFor) {
  const auto asks = define_for_path_guard(R"(
def forward(self, x):
    return x * 2 if torch.is_grad_enabled() else x
)");
  const auto does_not = define_for_path_guard(R"(
def forward(self, x):
    return x * 2 if x.size(0) > 1 else x
)");
  const auto x = at::ones({2});
  const auto guarded = guard_of(asks, {x});
  EXPECT_THAT(find_nodes(*guarded.path.graph, "aten::mul"), SizeIs(1));
  const auto other = guard_of(does_not, {x});
  const at::NoGradGuard no_grad;
  EXPECT_FALSE(guarded.guard.holds(asks._ivalue(), {x}));
  EXPECT_TRUE(other.guard.holds(does_not._ivalue(), {x}));
}

TEST_F(PathGuardTest, KnownChecksAreRemovedAndTheOthersNumbered) {
  const auto graph = test::parse(R"(
graph(%c : bool):
  %yes : bool = prim::Constant[value=1]()
  %place : int = prim::Constant[value=0]()
  aten_recompute::check_path[decides=-1](%yes, %yes, %place)
  return (%c)
)");
  EXPECT_THAT(number_checks(*graph), IsEmpty());
  EXPECT_THAT(find_nodes(*graph, "aten_recompute::check_path"), IsEmpty());
  const auto open = test::parse(R"(
graph(%c : bool, %x : Tensor):
  %data : bool = aten::Bool(%x)
  %yes : bool = prim::Constant[value=1]()
  %no : bool = prim::Constant[value=0]()
  %place : int = prim::Constant[value=0]()
  aten_recompute::check_path[decides=3](%c, %yes, %place)
  aten_recompute::check_path[decides=4](%data, %no, %place)
  return (%c)
)");
  const auto checks = number_checks(*open);
  ASSERT_THAT(checks, SizeIs(2));
  EXPECT_TRUE(checks[0].expected);
  EXPECT_FALSE(checks[1].expected);
  EXPECT_EQ(checks[0].decision, -1);  // no elements of tensors decide it
  EXPECT_EQ(checks[1].decision, 4);
  const auto nodes = find_nodes(*open, "aten_recompute::check_path");
  EXPECT_EQ(torch::jit::constant_as<int64_t>(nodes.at(1)->input(2)), 1);
}

}  // namespace
}  // namespace aten_recompute
