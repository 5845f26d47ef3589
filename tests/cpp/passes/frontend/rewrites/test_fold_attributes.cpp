#include "passes/frontend/rewrites/fold_attributes.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/testing/file_check.h>

#include <algorithm>

#include "passes/frontend/rewrites/inline_modules.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::Module;
using torch::jit::testing::FileCheck;

class FoldAttributes : public test::TorchTest {};

// A submodule computes scale * x if flag is set, so paths have two names.
Module with_attributes() {
  auto leaf = test::make_module("Leaf");
  leaf.register_attribute("flag", c10::BoolType::get(), true);
  leaf.register_attribute("count", c10::IntType::get(), 3);
  leaf.register_attribute("scale", c10::FloatType::get(), 0.5);
  leaf.register_attribute("mode", c10::StringType::get(), "fast");
  leaf.define(R"(
def forward(self, x):
    if self.flag and self.mode == "fast":
        x = x * self.scale + self.count
    return x
)");
  auto root = test::make_module("Root");
  root.register_module("leaf", leaf);
  root.define("def forward(self, x):\n    return self.leaf.forward(x)\n");
  return root;
}

std::vector<FoldedAttribute> fold(const Module& module, std::shared_ptr<torch::jit::Graph>& graph) {
  graph = test::method_graph(module);
  inline_modules(graph);
  auto folded = fold_attributes(graph, module._ivalue());
  graph->lint();
  return folded;
}

TEST_F(FoldAttributes, PlainValuesBecomeConstants) {
  std::shared_ptr<torch::jit::Graph> graph;
  const auto folded = fold(with_attributes(), graph);
  ASSERT_THAT(folded, SizeIs(4));
  EXPECT_THAT(folded[0].path, ElementsAre("leaf", "flag"));
  EXPECT_TRUE(folded[0].value.toBool());
  EXPECT_THAT(folded[1].path, ElementsAre("leaf", "mode"));
  EXPECT_EQ(folded[1].value.toStringRef(), "fast");
  EXPECT_THAT(folded[2].path, ElementsAre("leaf", "scale"));
  EXPECT_EQ(folded[2].value.toDouble(), 0.5);
  EXPECT_THAT(folded[3].path, ElementsAre("leaf", "count"));
  EXPECT_EQ(folded[3].value.toInt(), 3);
  for (auto* read : test::find_nodes(*graph, "prim::GetAttr")) {
    const bool used = read->output()->hasUses();
    EXPECT_EQ(used, read->s(c10::attr::name) == "leaf") << read->s(c10::attr::name);
  }
}

TEST_F(FoldAttributes, AnAssumptionHoldsUntilTheAttributeChanges) {
  const auto module = with_attributes();
  std::shared_ptr<torch::jit::Graph> graph;
  const auto folded = fold(module, graph);
  auto leaf = module.attr("leaf").toModule();
  for (const auto& attribute : folded) {
    EXPECT_TRUE(holds(attribute, module._ivalue())) << attribute.path.back();
  }
  leaf.setattr("flag", false);
  leaf.setattr("count", 4);
  leaf.setattr("scale", 0.25);
  leaf.setattr("mode", "slow");
  for (const auto& attribute : folded) {
    EXPECT_FALSE(holds(attribute, module._ivalue())) << attribute.path.back();
  }
}

TEST_F(FoldAttributes, NumbersThatChangeAreReadAtEveryCall) {
  const auto module = with_attributes();
  std::shared_ptr<torch::jit::Graph> graph;
  const auto all = fold(module, graph);
  const auto numbers = std::count_if(all.begin(), all.end(), is_number);
  EXPECT_EQ(numbers, 2);
  auto again = test::method_graph(module);
  inline_modules(again);
  const auto folded =
      fold_attributes(again, module._ivalue(), {{"leaf", "scale"}, {"leaf", "count"}});
  EXPECT_EQ(std::count_if(folded.begin(), folded.end(), is_number), 0);
  EXPECT_EQ(folded.size() + 2, all.size());
}

TEST_F(FoldAttributes, ANoneAttributeHoldsWhileItIsNone) {
  auto module = test::make_module("M");
  module.register_attribute("bias", c10::OptionalType::ofTensor(), c10::IValue());
  module.define(R"(
def forward(self, x):
    bias = self.bias
    if bias is not None:
        x = x + bias
    return x
)");
  std::shared_ptr<torch::jit::Graph> graph;
  const auto folded = fold(module, graph);
  ASSERT_THAT(folded, SizeIs(1));
  EXPECT_TRUE(folded[0].value.isNone());
  EXPECT_FALSE(folded[0].not_none);
  EXPECT_TRUE(holds(folded[0], module._ivalue()));
  module.setattr("bias", at::ones({1}));
  EXPECT_FALSE(holds(folded[0], module._ivalue()));
}

TEST_F(FoldAttributes, AnOptionalAttributeWithAValueGetsItsElementType) {
  auto module = test::make_module("M");
  module.register_attribute("bias", c10::OptionalType::ofTensor(), at::ones({1}));
  module.define(R"(
def forward(self, x):
    bias = self.bias
    if bias is not None:
        x = x + bias
    return x
)");
  std::shared_ptr<torch::jit::Graph> graph;
  const auto folded = fold(module, graph);
  ASSERT_THAT(folded, SizeIs(1));
  EXPECT_TRUE(folded[0].not_none);
  FileCheck()
      .check("Tensor? = prim::GetAttr[name=\"bias\"]")
      ->check_next("Tensor = prim::unchecked_cast")
      ->run(*graph);
  // Another tensor keeps the assumption, and None breaks it.
  module.setattr("bias", at::zeros({2}));
  EXPECT_TRUE(holds(folded[0], module._ivalue()));
  module.setattr("bias", c10::IValue());
  EXPECT_FALSE(holds(folded[0], module._ivalue()));
}

TEST_F(FoldAttributes, AttributesThatTheMethodSetsAreNotFolded) {
  auto module = test::make_module("M");
  module.register_attribute("calls", c10::IntType::get(), 0);
  module.define(R"(
def forward(self, x):
    self.calls = self.calls + 1
    return x * self.calls
)");
  std::shared_ptr<torch::jit::Graph> graph;
  EXPECT_THAT(fold(module, graph), IsEmpty());
  FileCheck().check_count("prim::GetAttr[name=\"calls\"]", 2, /*exactly=*/true)->run(*graph);
}

TEST_F(FoldAttributes, TensorsAreReadAtEveryCall) {
  const auto module = test::make_linear(2, 3);
  std::shared_ptr<torch::jit::Graph> graph;
  EXPECT_THAT(fold(module, graph), IsEmpty());
  EXPECT_EQ(graph->toString(), test::method_graph(module)->toString());
}

}  // namespace
}  // namespace aten_recompute
