#include "ir/memory_base.h"

#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

// Returns the name of the value whose memory the first output of the graph is in.
std::string base(const std::string& ir, Aliasing aliasing = Aliasing::kAll) {
  const auto graph = test::parse(ir);
  return memory_base(graph->outputs()[0], aliasing)->debugName();
}

TEST(MemoryBase, ViewsAndInPlaceOperatorsAreFollowed) {
  EXPECT_EQ(base(R"(
graph(%x : Tensor):
  %one : int = prim::Constant[value=1]()
  %made : Tensor = aten::mul(%x, %x)
  %view : Tensor = aten::t(%made)
  %written : Tensor = aten::add_(%view, %one, %one)
  %maybe : Tensor = aten::contiguous(%written, %one)
  return (%maybe)
)"),
            "made");
}

TEST(MemoryBase, ElementsAreInTheMemoryOfTheirList) {
  EXPECT_EQ(base(R"(
graph(%list : Tensor[]):
  %one : int = prim::Constant[value=1]()
  %element : Tensor = aten::__getitem__(%list, %one)
  return (%element)
)"),
            "list");
  EXPECT_EQ(base(R"(
graph(%x : Tensor):
  %one : int = prim::Constant[value=1]()
  %pieces : Tensor[] = aten::split(%x, %one, %one)
  %a : Tensor, %b : Tensor = prim::ListUnpack(%pieces)
  return (%b)
)"),
            "x");
}

TEST(MemoryBase, OperatorsOfOtherLibrariesAreFollowedOnRequest) {
  const std::string ir = R"(
graph(%x : Tensor?):
  %cast : Tensor = prim::unchecked_unwrap_optional(%x)
  %marked : Tensor = aten_recompute::must_save(%cast)
  %view : Tensor = aten::t(%marked)
  return (%view)
)";
  EXPECT_EQ(base(ir), "x");
  EXPECT_EQ(base(ir, Aliasing::kOfAten), "marked");
}

TEST(MemoryBase, CastsAreFollowedInEveryCase) {
  const std::string ir = R"(
graph(%x : Tensor?):
  %cast : Tensor = prim::unchecked_unwrap_optional(%x)
  return (%cast)
)";
  EXPECT_EQ(base(ir), "x");
  EXPECT_EQ(base(ir, Aliasing::kOfAten), "x");
}

TEST(MemoryBase, WhatANodeMakesIsItsOwnBase) {
  EXPECT_EQ(base(R"(
graph(%x : Tensor):
  %list : Tensor[] = prim::ListConstruct(%x)
  %made : Tensor = aten::cat(%list, %x)
  return (%list)
)"),
            "list");
  EXPECT_EQ(base("graph(%x : Tensor):\n  return (%x)"), "x");
}

}  // namespace
}  // namespace aten_recompute
