#include "passes/frontend/regions/mark_clobbered_reads.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> marked(const std::string& ir) {
  const auto graph = test::parse(ir);
  mark_clobbered_reads(*graph);
  std::vector<std::string> names;
  for (auto* node : graph->nodes()) {
    if (node->hasAttribute(symbols::kReadsWritten))
      names.push_back(node->output()->debugName());
  }
  return names;
}

// Recomputation would make the view again, so its reader is marked.
TEST(MarkClobberedReads, ReadsBeforeTheWriteAreMarked) {
  EXPECT_THAT(marked(R"(
graph(%x : Tensor, %table : Tensor):
  %one : int = prim::Constant[value=1]()
  %view : Tensor = aten::t(%table)
  %before : Tensor = aten::mul(%x, %view)
  %other : Tensor = aten::mul(%x, %x)
  %written : Tensor = aten::add_(%table, %one, %one)
  %after : Tensor = aten::mul(%x, %table)
  return (%before, %other, %after)
)"),
              ElementsAre("before"));
}

TEST(MarkClobberedReads, AWriteToAViewMarksReadsOfItsBase) {
  EXPECT_THAT(marked(R"(
graph(%x : Tensor, %table : Tensor):
  %zero : int = prim::Constant[value=0]()
  %before : Tensor = aten::mul(%x, %table)
  %row : Tensor = aten::select(%table, %zero, %zero)
  %written : Tensor = aten::zero_(%row)
  return (%before)
)"),
              ElementsAre("before"));
}

// In the next iteration the read comes after the write, and the write after the read.
TEST(MarkClobberedReads, ReadsInALoopWithAWriteAreMarked) {
  EXPECT_THAT(marked(R"(
graph(%x : Tensor, %table : Tensor):
  %one : int = prim::Constant[value=1]()
  %yes : bool = prim::Constant[value=1]()
  %written : Tensor = aten::add_(%table, %one, %one)
  %after : Tensor = aten::mul(%x, %table)
  return (%after)
)"),
              IsEmpty());
  const auto graph = test::parse(R"(
graph(%x : Tensor, %table : Tensor):
  %one : int = prim::Constant[value=1]()
  %yes : bool = prim::Constant[value=1]()
  %y : Tensor = prim::Loop(%one, %yes, %x)
    block0(%i : int, %old : Tensor):
      %written : Tensor = aten::add_(%table, %one, %one)
      %after : Tensor = aten::mul(%old, %table)
      -> (%yes, %after)
  return (%y)
)");
  mark_clobbered_reads(*graph);
  for (auto* node : torch::jit::findAllNodes(*graph, c10::aten::mul, true))
    EXPECT_TRUE(node->hasAttribute(symbols::kReadsWritten));
}

}  // namespace
}  // namespace aten_recompute
