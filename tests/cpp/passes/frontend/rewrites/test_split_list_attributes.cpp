#include "passes/frontend/rewrites/split_list_attributes.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/frontend/rewrites/inline_modules.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::Module;

class SplitListAttributes : public test::TorchTest {};

Module with_list(const std::string& source) {
  auto module = test::make_module("Root");
  module.register_attribute("weights", c10::ListType::ofTensors(),
                            c10::List<at::Tensor>({at::ones({2}), at::zeros({2})}));
  module.define(source);
  return module;
}

std::vector<FoldedAttribute> split(const Module& module,
                                   std::shared_ptr<torch::jit::Graph>& graph) {
  graph = test::method_graph(module);
  inline_modules(graph);
  auto assumptions = split_list_attributes(graph, module._ivalue());
  graph->lint();
  return assumptions;
}

TEST_F(SplitListAttributes, AnOperatorGetsTheElements) {
  const auto module = with_list("def forward(self, x):\n    return torch.cat(self.weights)\n");
  std::shared_ptr<torch::jit::Graph> graph;
  const auto assumptions = split(module, graph);
  const auto lists = test::find_nodes(*graph, "prim::ListConstruct");
  ASSERT_THAT(lists, SizeIs(1));
  EXPECT_THAT(lists[0]->inputs(), SizeIs(2));
  EXPECT_EQ(test::find_nodes(*graph, "aten::cat")[0]->input(0), lists[0]->output());
  const auto result = test::run_graph(graph, {module._ivalue(), at::ones({2})});
  EXPECT_TRUE(at::equal(result[0].toTensor(), at::cat({at::ones({2}), at::zeros({2})})));
  // A list of another length is another graph.
  ASSERT_THAT(assumptions, SizeIs(1));
  EXPECT_THAT(assumptions[0].path, ElementsAre("weights"));
  EXPECT_TRUE(holds(assumptions[0], module._ivalue()));
  module.attr("weights").toTensorList().push_back(at::ones({2}));
  EXPECT_FALSE(holds(assumptions[0], module._ivalue()));
}

TEST_F(SplitListAttributes, AListThatTheMethodChangesStays) {
  std::shared_ptr<torch::jit::Graph> graph;
  EXPECT_THAT(split(with_list("def forward(self, x):\n    self.weights.append(x)\n"
                              "    return torch.cat(self.weights)\n"),
                    graph),
              IsEmpty());
  EXPECT_THAT(test::find_nodes(*graph, "prim::ListConstruct"), IsEmpty());
}

TEST_F(SplitListAttributes, AListOfWhichOnlyElementsAreReadStays) {
  std::shared_ptr<torch::jit::Graph> graph;
  EXPECT_THAT(split(with_list("def forward(self, x):\n    return x * self.weights[0]\n"), graph),
              IsEmpty());
  EXPECT_THAT(test::find_nodes(*graph, "prim::ListConstruct"), IsEmpty());
}

}  // namespace
}  // namespace aten_recompute
