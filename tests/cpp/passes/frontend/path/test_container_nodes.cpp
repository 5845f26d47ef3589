#include "passes/frontend/path/container_nodes.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/frontend/rewrites/not_recordable.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::Graph;

class ContainerNodesTest : public test::TorchTest {
 protected:
  // Runs the nodes of the graph, whose inputs %0, %1, ... are the numbers 0, 1, ...
  void run(const std::string& ir) {
    method_ = test::parse(ir);
    for (size_t i = 0; i < method_->inputs().size(); ++i)
      values_.set(method_->inputs()[i],
                  constant_item(static_cast<int64_t>(i), c10::IntType::get()));
    run_nodes();
  }

  void run_nodes() {
    for (auto* node : method_->nodes())
      EXPECT_TRUE(run_container_node(node, values_, builder_)) << node->kind().toQualString();
  }

  // Returns the result as a value.
  c10::IValue result() { return builder_.value_of(values_.get(method_->outputs()[0])); }

  std::shared_ptr<Graph> method_;
  PathBuilder builder_;
  PathValues values_;
};

TEST_F(ContainerNodesTest, ThePathPutsContainersTogetherWithoutOperators) {
  run(R"(
graph(%a : int, %b : int, %c : int):
  %t : (int, int, int) = prim::TupleConstruct(%a, %b, %c)
  %s : (int, int) = prim::TupleSlice[beg=1, end=3](%t)
  %x : int, %y : int = prim::TupleUnpack(%s)
  %l : int[] = prim::ListConstruct(%y, %x)
  return (%l)
)");
  EXPECT_THAT(result().toIntVector(), ElementsAre(2, 1));
  EXPECT_THAT(test::listing(*builder_.graph()), IsEmpty());
}

TEST_F(ContainerNodesTest, TheLastValueOfAKeyCountsAndItsFirstPlace) {
  run(R"(
graph(%a : int, %b : int, %c : int):
  %d : Dict(int, int) = prim::DictConstruct(%a, %a, %b, %b, %a, %c)
  return (%d)
)");
  const auto& dict = *values_.get(method_->outputs()[0]).container;
  ASSERT_THAT(dict.keys, SizeIs(2));
  EXPECT_EQ(dict.keys[0].toInt(), 0);
  EXPECT_EQ(dict.items[0].value.toInt(), 2);
}

TEST_F(ContainerNodesTest, AnIndexMayCountFromTheEnd) {
  method_ = test::parse(R"(
graph(%a : int, %b : int, %t : (int, int), %i : int):
  %last : int = prim::TupleIndex(%t, %i)
  return (%last)
)");
  const auto int_type = c10::IntType::get();
  values_.set(method_->inputs()[2],
              constant_item(c10::ivalue::Tuple::create({7, 8}), method_->inputs()[2]->type()));
  values_.set(method_->inputs()[3], constant_item(-1, int_type));
  run_nodes();
  EXPECT_EQ(result().toInt(), 8);
}

// The node stays where an operator made the list, and raises an error for another length.
TEST_F(ContainerNodesTest, AListThatAnOperatorMadeIsUnpackedInThePath) {
  method_ = test::parse(R"(
graph(%l : Tensor[]):
  %x : Tensor, %y : Tensor = prim::ListUnpack(%l)
  return (%y)
)");
  auto* symbol = builder_.graph()->addInput("l")->setType(c10::ListType::ofTensors());
  const c10::List<at::Tensor> list({at::zeros({1}), at::ones({1})});
  values_.set(method_->inputs()[0], make_item(list, symbol, symbol->type(), /*is_callers=*/false));
  run_nodes();
  EXPECT_EQ(result().toTensor().item<float>(), 1);
  EXPECT_THAT(test::listing(*builder_.graph()), ElementsAre("x, y = prim::ListUnpack(l)"));
}

TEST_F(ContainerNodesTest, AnotherNumberOfElementsIsNotRecorded) {
  EXPECT_THROW(run(R"(
graph(%a : int):
  %l : int[] = prim::ListConstruct(%a)
  %x : int, %y : int = prim::ListUnpack(%l)
  return (%x)
)"),
               NotRecordable);
}

TEST_F(ContainerNodesTest, OtherNodesAreLeftAlone) {
  const auto graph =
      test::parse("graph(%x : Tensor):\n  %y : Tensor = aten::relu(%x)\n  return (%y)");
  EXPECT_FALSE(run_container_node(test::find_nodes(*graph, "aten::relu").at(0), values_, builder_));
}

}  // namespace
}  // namespace aten_recompute
