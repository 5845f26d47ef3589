#include "passes/frontend/path/caller_writes.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

class CallerWritesTest : public test::TorchTest {};

TEST_F(CallerWritesTest, TensorsInContainersAndTheirViewsAreTheCallers) {
  const auto x = at::ones({2});
  const auto y = at::ones({2});
  c10::Dict<std::string, at::Tensor> dict;
  dict.insert("y", y);
  CallerWrites writes;
  writes.add_given(c10::ivalue::Tuple::create({c10::List<at::Tensor>({x}), dict}));
  EXPECT_TRUE(writes.is_callers(x.slice(0, 0, 1)));
  EXPECT_TRUE(writes.is_callers(y));
  EXPECT_FALSE(writes.is_own(y));
  EXPECT_TRUE(writes.is_own(at::ones({2})));
  EXPECT_FALSE(writes.is_own(at::Tensor()));
  EXPECT_FALSE(writes.is_callers(at::Tensor()));
}

TEST_F(CallerWritesTest, OnlyWritesToTheCallersTensorsAreUndone) {
  const auto given = at::ones({2});
  const auto own = at::ones({2});
  {
    CallerWrites writes;
    writes.add_given(given);
    for (const auto& tensor : {given, own}) {
      writes.prepare_write(tensor);
      tensor.add_(1);
    }
  }
  EXPECT_TRUE(given.equal(at::ones({2})));
  EXPECT_TRUE(own.equal(at::full({2}, 2)));
}

TEST_F(CallerWritesTest, ChangesComeInTheirOrder) {
  const auto method = test::parse(R"(
graph(%self, %list : Tensor[], %x : Tensor):
  %0 : Tensor[] = aten::append(%list, %x)
  prim::SetAttr[name="last"](%self, %x)
  return (%x)
)");
  PathBuilder builder;
  auto& graph = *builder.graph();
  auto* self = graph.addInput("self");
  auto* list = graph.addInput("list")->setType(c10::ListType::ofTensors());
  auto* x = graph.addInput("x");
  Item object;
  object.symbol = self;
  Item tensor;
  tensor.value = at::ones({1});
  tensor.symbol = x;
  CallerWrites writes;
  EXPECT_FALSE(writes.has_changes());
  writes.add_change(test::find_nodes(*method, "prim::SetAttr").at(0), {object, tensor});
  EXPECT_TRUE(writes.has_changes());
  EXPECT_FALSE(writes.changes_containers());
  const auto given = c10::List<at::Tensor>({at::ones({1})});
  writes.add_change(test::find_nodes(*method, "aten::append").at(0),
                    {make_item(given, list, list->type(), /*is_callers=*/true), tensor});
  EXPECT_TRUE(writes.changes_containers());
  writes.write_changes(builder);
  EXPECT_THAT(test::listing(graph),
              ElementsAre("prim::SetAttr(self, x)", "$0 = aten::append(list, x)"));
}

}  // namespace
}  // namespace aten_recompute
