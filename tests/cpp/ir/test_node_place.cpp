#include "ir/node_place.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

TEST(NodePlace, GivesLayerAndModuleAndNothingElse) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  %z : Tensor = aten::tanh(%y)
  return (%z))");
  auto* from = test::find_value(*graph, "y")->node();
  auto* to = test::find_value(*graph, "z")->node();
  to->s_(symbols::kModulePath, "head");
  copy_place(from, to);
  EXPECT_EQ(to->s(symbols::kModulePath), "head") << "there was nothing to give";
  from->i_(symbols::kLayer, 2)->s_(symbols::kModulePath, "blocks.2")->i_(symbols::kRecomputed, 1);
  copy_place(from, to);
  EXPECT_EQ(to->i(symbols::kLayer), 2);
  EXPECT_EQ(to->s(symbols::kModulePath), "blocks.2");
  EXPECT_FALSE(to->hasAttribute(symbols::kRecomputed));
}

}  // namespace
}  // namespace aten_recompute
