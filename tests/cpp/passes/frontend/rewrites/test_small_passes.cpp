#include "passes/frontend/rewrites/small_passes.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

class RemoveWholeSlices : public test::TorchTest {};

// Returns how many slices are left of x[<slices>], which `readers` read.
size_t slices_left(const std::string& slices, const std::string& readers) {
  auto graph = test::parse(R"(
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %0 : int = prim::Constant[value=0]()
  %1 : int = prim::Constant[value=1]()
  %3 : int = prim::Constant[value=3]()
  %last : int = prim::Constant[value=9223372036854775807]()
)" + slices + readers);
  remove_whole_slices(*graph);
  graph->lint();
  return test::find_nodes(*graph, "aten::slice").size();
}

const std::string kSelects = R"(
  %z : Tensor = aten::select(%y, %1, %3)
  return (%z)
)";

TEST_F(RemoveWholeSlices, LeavesTheIndexThatReadsThem) {
  EXPECT_EQ(slices_left("  %y : Tensor = aten::slice(%x, %0, %none, %none, %1)", kSelects), 0);
  EXPECT_EQ(slices_left("  %y : Tensor = aten::slice(%x, %0, %0, %last, %1)", kSelects), 0);
  EXPECT_EQ(slices_left(R"(  %y.1 : Tensor = aten::slice(%x, %0, %none, %none, %1)
  %y : Tensor = aten::slice(%y.1, %1, %1, %3, %1))",
                        kSelects),
            1);
}

TEST_F(RemoveWholeSlices, KeepsPartsOfADimension) {
  EXPECT_EQ(slices_left("  %y : Tensor = aten::slice(%x, %0, %1, %none, %1)", kSelects), 1);
  EXPECT_EQ(slices_left("  %y : Tensor = aten::slice(%x, %0, %none, %3, %1)", kSelects), 1);
  EXPECT_EQ(slices_left("  %y : Tensor = aten::slice(%x, %0, %none, %none, %3)", kSelects), 1);
}

// Eager's x[:] is a view with a node of its own.
TEST_F(RemoveWholeSlices, KeepsWhatIsNoPartOfAnotherIndex) {
  EXPECT_EQ(slices_left("  %y : Tensor = aten::slice(%x, %0, %none, %none, %1)", R"(
  %z : Tensor = aten::sin(%y)
  return (%z)
)"),
            1);
  EXPECT_EQ(slices_left("  %y : Tensor = aten::slice(%x, %0, %none, %none, %1)", R"(
  return (%y)
)"),
            1);
}

}  // namespace
}  // namespace aten_recompute
