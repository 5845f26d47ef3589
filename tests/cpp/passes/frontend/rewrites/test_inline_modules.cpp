#include "passes/frontend/rewrites/inline_modules.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string>

#include "ir/symbols.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_nodes;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using torch::jit::Graph;
using torch::jit::Module;
using torch::jit::Node;

class InlineModules : public test::TorchTest {};

std::string path_of(const Node* node) {
  return node->hasAttribute(symbols::kModulePath) ? node->s(symbols::kModulePath) : "(none)";
}

// Returns the module path of the only node of this kind.
std::string path_of_only(const Graph& graph, const std::string& kind) {
  const auto nodes = find_nodes(graph, kind);
  return nodes.size() == 1 ? path_of(nodes[0]) : std::to_string(nodes.size()) + " nodes";
}

// root { body { 0: Leaf, 1: Leaf } }, where Leaf.forward calls Leaf.act, which calls tanh.
Module nested() {
  auto body = test::make_module("Body");
  for (const char* name : {"0", "1"}) {
    auto leaf = test::make_module("Leaf");
    leaf.define(R"(
def act(self, x):
    return torch.tanh(x)
def forward(self, x):
    return self.act(x + 1)
)");
    body.register_module(name, leaf);
  }
  body.define(R"(
def forward(self, x):
    x = getattr(self, "0").forward(x)
    return torch.relu(getattr(self, "1").forward(x))
)");
  auto root = test::make_module("Root");
  root.register_module("body", body);
  root.define(R"(
def forward(self, x):
    return torch.sigmoid(self.body.forward(x))
)");
  return root;
}

TEST_F(InlineModules, NodesGetThePathOfTheModuleWhoseMethodTheyComeFrom) {
  auto graph = test::method_graph(nested());
  inline_modules(graph);
  graph->lint();

  EXPECT_THAT(find_nodes(*graph, "prim::CallMethod"), IsEmpty());
  std::vector<std::string> tanh_paths;
  for (auto* node : find_nodes(*graph, "aten::tanh")) {
    tanh_paths.push_back(path_of(node));
  }
  // The nodes of Leaf.act have the path of the leaf, because a method is not a module.
  EXPECT_THAT(tanh_paths, ElementsAre("body.0", "body.1"));
  EXPECT_EQ(path_of_only(*graph, "aten::relu"), "body");
  EXPECT_EQ(path_of_only(*graph, "aten::sigmoid"), "(none)");
}

TEST_F(InlineModules, TheInlinedGraphComputesTheSame) {
  const auto root = nested();
  auto graph = test::method_graph(root);
  inline_modules(graph);
  const auto x = at::randn({3});
  const auto y = test::run_graph(graph, {root._ivalue(), x})[0].toTensor();
  EXPECT_TRUE(test::bitwise_equal(y, at::sigmoid(at::relu(at::tanh(at::tanh(x + 1) + 1)))));
}

TEST_F(InlineModules, NodesOfAFunctionGetTheirCallersPath) {
  auto helpers = std::make_shared<torch::jit::CompilationUnit>();
  helpers->define(std::nullopt, "def helper(x):\n    return torch.tanh(x)\n",
                  torch::jit::nativeResolver(), nullptr);
  // The graph calls a function from a method: leaf.forward(x) = helper(x).
  auto leaf = test::make_module("Leaf");
  auto leaf_graph = std::make_shared<Graph>();
  leaf_graph->addInput("self")->setType(leaf.type());
  auto* x = leaf_graph->addInput("x");
  auto* symbol = leaf_graph->insertNode(leaf_graph->create(c10::prim::Constant));
  symbol->s_(c10::attr::name, "helper");
  symbol->output()->setType(c10::FunctionType::create(&helpers->get_function({"helper"})));
  auto* call =
      leaf_graph->insertNode(leaf_graph->create(c10::prim::CallFunction, {symbol->output(), x}, 1));
  leaf_graph->registerOutput(call->output());
  leaf.type()->addMethod(leaf._ivalue()->compilation_unit()->create_function(
      c10::QualifiedName(*leaf.type()->name(), "forward"), leaf_graph));

  auto root = test::make_module("Root");
  root.register_module("leaf", leaf);
  root.define("def forward(self, x):\n    return self.leaf.forward(x)\n");
  auto graph = test::method_graph(root);
  inline_modules(graph);

  EXPECT_THAT(find_nodes(*graph, "prim::CallFunction"), IsEmpty());
  EXPECT_EQ(path_of_only(*graph, "aten::tanh"), "leaf");
}

TEST_F(InlineModules, CallsInsideOfControlFlowAreInlinedToo) {
  auto root = test::make_module("Root");
  root.register_module("body", nested().attr("body").toModule());
  root.define(R"(
def forward(self, x, again: bool):
    if again:
        x = self.body.forward(x)
    return x
)");
  auto graph = test::method_graph(root);
  inline_modules(graph);
  graph->lint();
  EXPECT_THAT(find_nodes(*graph, "prim::CallMethod"), IsEmpty());
  EXPECT_EQ(path_of_only(*graph, "aten::relu"), "body");
}

TEST_F(InlineModules, ConstantsAndAttributeReadsHaveNoPath) {
  auto graph = test::method_graph(nested());
  inline_modules(graph);
  for (const char* kind : {"prim::Constant", "prim::GetAttr"}) {
    const auto nodes = find_nodes(*graph, kind);
    ASSERT_FALSE(nodes.empty()) << kind;
    for (auto* node : nodes) {
      EXPECT_EQ(path_of(node), "(none)") << kind;
    }
  }
}

TEST_F(InlineModules, AGraphWithoutCallsStaysAsItIs) {
  auto graph = test::parse(R"(
graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  return (%y)
)");
  const auto before = graph->toString();
  inline_modules(graph);
  EXPECT_EQ(graph->toString(), before);
}

}  // namespace
}  // namespace aten_recompute
