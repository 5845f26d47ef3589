#include "passes/frontend/path/determined_types.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

class DeterminedTypes : public test::TorchTest {
 protected:
  // Returns the answer for the only node of the graph, on these operands.
  static bool determines(const std::string& ir, const std::vector<Item>& operands) {
    const auto graph = test::parse(ir);
    return determines_types(*graph->nodes().begin(), operands);
  }

  // Returns what an operator of the path has returned: `symbol` stands for it.
  Item computed(const c10::IValue& value) {
    return make_item(value, graph_.addInput()->setType(value.type()), value.type(), false);
  }

  static Item constant(const c10::IValue& value) { return constant_item(value, value.type()); }

  torch::jit::Graph graph_;
};

TEST_F(DeterminedTypes, TheyFollowFromThoseOfTheTensors) {
  const char* relu = "graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)";
  auto x = computed(at::ones({2}));
  EXPECT_TRUE(determines(relu, {x}));
  mark_undetermined(x);
  EXPECT_FALSE(determines(relu, {x}));
}

TEST_F(DeterminedTypes, ANumberMayDecideOnlyAsAnotherDimension) {
  const char* select = R"(
graph(%x : Tensor, %dim : int, %index : int):
  %y : Tensor = aten::select(%x, %dim, %index)
  return (%y)
)";
  const auto x = computed(at::ones({2}));
  EXPECT_TRUE(determines(select, {x, constant(0), computed(1)}));
  EXPECT_FALSE(determines(select, {x, computed(0), constant(1)}));
}

TEST_F(DeterminedTypes, AFlagMayDecide) {
  const char* sum = R"(
graph(%x : Tensor, %dims : int[], %keep : bool, %none : NoneType):
  %y : Tensor = aten::sum(%x, %dims, %keep, %none)
  return (%y)
)";
  const auto x = computed(at::ones({2}));
  const auto dims = constant(c10::List<int64_t>({0}));
  EXPECT_TRUE(determines(sum, {x, dims, constant(false), constant({})}));
  EXPECT_FALSE(determines(sum, {x, dims, computed(false), constant({})}));
}

// squeeze() drops dimensions of size 1.
TEST_F(DeterminedTypes, SizesMayDecideTheRank) {
  EXPECT_FALSE(determines("graph(%x : Tensor):\n  %y : Tensor = aten::squeeze(%x)\n  return (%y)",
                          {computed(at::ones({2}))}));
}

}  // namespace
}  // namespace aten_recompute
