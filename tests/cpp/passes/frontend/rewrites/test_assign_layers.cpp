#include "passes/frontend/rewrites/assign_layers.h"

#include <torch/csrc/jit/ir/ir.h>

#include <stdexcept>

#include "ir/symbols.h"
#include "passes/frontend/rewrites/inline_modules.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using torch::jit::Module;

class AssignLayers : public test::TorchTest {};

Module activation(const std::string& class_name, const std::string& function) {
  auto module = test::make_module(class_name);
  module.define("def forward(self, x):\n    return torch." + function + "(x)\n");
  return module;
}

// forward() calls the children in order. TorchScript reads a child called 0 with getattr().
Module sequential(const std::vector<Module>& children) {
  auto module = test::make_module("Sequential");
  std::string source = "def forward(self, x):\n";
  for (size_t i = 0; i < children.size(); ++i) {
    const auto name = std::to_string(i);
    module.register_module(name, children[i]);
    source += "    x = getattr(self, \"" + name + "\").forward(x)\n";
  }
  module.define(source + "    return x\n");
  return module;
}

// forward(x) = tanh(body(sigmoid(x))), where sigmoid and tanh run in the root's own method.
Module model_of(const Module& body) {
  auto model = test::make_module("Model");
  model.register_module("body", body);
  model.define(R"(
def forward(self, x):
    return torch.tanh(self.body.forward(torch.sigmoid(x)))
)");
  return model;
}

// Returns "relu:0" for each operator in layer 0, "relu:-" for one in no layer.
std::vector<std::string> layers(const Module& model, const std::string& pattern = "") {
  auto graph = test::method_graph(model);
  inline_modules(graph);
  assign_layers(graph, pattern);
  graph->lint();
  std::vector<std::string> result;
  for (auto* node : graph->nodes()) {
    if (!node->kind().is_aten()) {
      continue;
    }
    result.push_back(
        std::string(node->kind().toUnqualString()) + ":" +
        (node->hasAttribute(symbols::kLayer) ? std::to_string(node->i(symbols::kLayer)) : "-"));
  }
  return result;
}

Module relu() {
  return activation("ReLU", "relu");
}

TEST_F(AssignLayers, EachOfSeveralModulesOfOneClassIsALayer) {
  EXPECT_THAT(layers(model_of(sequential({relu(), relu(), relu()}))),
              ElementsAre("sigmoid:-", "relu:0", "relu:1", "relu:2", "tanh:-"));
}

TEST_F(AssignLayers, ALinearBeginsALayerThatItsReluBelongsTo) {
  const auto body = sequential({test::make_linear(2, 2), relu(), test::make_linear(2, 2), relu()});
  EXPECT_THAT(layers(model_of(body)),
              ElementsAre("sigmoid:-", "linear:0", "relu:0", "linear:1", "relu:1", "tanh:-"));
}

TEST_F(AssignLayers, NodesBeforeTheFirstLayerAreInNoLayer) {
  const auto body =
      sequential({activation("Neg", "neg"), test::make_linear(2, 2), test::make_linear(2, 2)});
  EXPECT_THAT(layers(model_of(body)),
              ElementsAre("sigmoid:-", "neg:-", "linear:0", "linear:1", "tanh:-"));
}

TEST_F(AssignLayers, TheOutermostOfNestedContainersCounts) {
  const auto body = sequential({sequential({relu(), relu()}), sequential({relu(), relu()})});
  EXPECT_THAT(layers(model_of(body)),
              ElementsAre("sigmoid:-", "relu:0", "relu:0", "relu:1", "relu:1", "tanh:-"));
}

TEST_F(AssignLayers, AContainerWithOneChildIsIgnored) {
  const auto body = sequential({sequential({relu(), relu()})});
  EXPECT_THAT(layers(model_of(body)), ElementsAre("sigmoid:-", "relu:0", "relu:1", "tanh:-"));
}

TEST_F(AssignLayers, ChildrenOfDifferentClassesAreNoLayers) {
  const auto body = sequential({relu(), activation("Neg", "neg")});
  EXPECT_THAT(layers(model_of(body)), ElementsAre("sigmoid:-", "relu:-", "neg:-", "tanh:-"));
}

TEST_F(AssignLayers, NumbersFollowTheOrderOfExecution) {
  auto body = test::make_module("ModuleList");
  body.register_module("0", relu());
  body.register_module("1", activation("ReLU", "neg"));
  auto model = test::make_module("Model");
  model.register_module("body", body);
  model.define(R"(
def forward(self, x):
    x = getattr(self.body, "1").forward(x)
    return getattr(self.body, "0").forward(x)
)");
  EXPECT_THAT(layers(model), ElementsAre("neg:0", "relu:1"));
}

TEST_F(AssignLayers, AModuleThatRunsTwiceIsOneLayer) {
  auto body = test::make_module("ModuleList");
  body.register_module("0", relu());
  body.register_module("1", activation("ReLU", "neg"));
  auto model = test::make_module("Model");
  model.register_module("body", body);
  model.define(R"(
def forward(self, x):
    x = getattr(self.body, "0").forward(x)
    x = getattr(self.body, "1").forward(x)
    return getattr(self.body, "0").forward(x)
)");
  EXPECT_THAT(layers(model), ElementsAre("relu:0", "neg:1", "relu:0"));
}

TEST_F(AssignLayers, APatternNamesWholePaths) {
  const auto model = model_of(sequential({relu(), activation("Neg", "neg"), relu()}));
  EXPECT_THAT(layers(model, "body\\.[02]"),
              ElementsAre("sigmoid:-", "relu:0", "neg:-", "relu:1", "tanh:-"));
  // Everything inside the matching module is one layer.
  EXPECT_THAT(layers(model, "body"),
              ElementsAre("sigmoid:-", "relu:0", "neg:0", "relu:0", "tanh:-"));
}

TEST_F(AssignLayers, APatternThatMatchesNothingIsAnError) {
  const auto model = model_of(sequential({relu(), relu()}));
  // "od" matches a part of "body", but no whole path.
  for (const char* pattern : {"blocks\\..*", "od"}) {
    EXPECT_THAT([&] { layers(model, pattern); },
                ::testing::ThrowsMessage<std::invalid_argument>(
                    HasSubstr(std::string("\"") + pattern + "\" matches no module path")));
  }
}

TEST_F(AssignLayers, APatternThatIsNoRegularExpressionIsAnError) {
  const auto model = model_of(sequential({relu(), relu()}));
  EXPECT_THAT([&] { layers(model, "body.("); },
              ::testing::ThrowsMessage<std::invalid_argument>(
                  HasSubstr("\"body.(\" is not a regular expression")));
}

TEST_F(AssignLayers, MarkLayerOverrulesModules) {
  auto graph = test::method_graph(sequential({relu(), relu()}));
  inline_modules(graph);
  auto* first = test::find_nodes(*graph, "aten::relu").at(0);
  const torch::jit::WithInsertPoint guard(first);
  auto* mark = graph->insert(symbols::kMarkLayer, {first->input(0), graph->insertConstant(5)});
  first->replaceInput(0, mark);
  assign_layers(graph, "");
  // A pattern is ignored as well.
  assign_layers(graph, "matches nothing");
  for (auto* node : test::find_nodes(*graph, "aten::relu")) {
    EXPECT_FALSE(node->hasAttribute(symbols::kLayer));
  }
}

}  // namespace
}  // namespace aten_recompute
