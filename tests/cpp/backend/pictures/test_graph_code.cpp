// Graphs as code, and the files of the option "save_ir" from C++.
#include "backend/pictures/graph_code.h"

#include <aten_recompute/aten_recompute.h>

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include <filesystem>

#include "tests/cpp/support/temporary_folder.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class GraphCode : public test::TorchTest {};

TEST_F(GraphCode, IsAFunctionWithALineForEachOperator) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %w : Tensor):
  %h : Tensor = aten::mm(%x, %w)
  %y : Tensor = aten::relu(%h)
  return (%h, %y))");
  EXPECT_EQ(code_of(graph, "forward"),
            "def forward(x: Tensor,\n"
            "    w: Tensor) -> Tuple[Tensor, Tensor]:\n"
            "  h = torch.mm(x, w)\n"
            "  y = torch.relu(h)\n"
            "  return (h, y)\n");
}

TEST_F(GraphCode, PrintsTheGraphInsideOfAnOperator) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %y : Tensor = aten::relu(%x)
  return (%y))");
  const auto inner = test::parse(R"(
graph(%a : Tensor):
  %b : Tensor = aten::tanh(%a)
  return (%b))");
  auto* relu = test::find_value(*graph, "y")->node();
  auto* tape =
      graph->create(c10::Symbol::fromQualString("aten_recompute::tape_forward"), relu->inputs(), 2);
  tape->g_(c10::attr::Subgraph, inner)->insertBefore(relu);
  relu->output()->replaceAllUsesWith(tape->output(0));
  const auto before = graph->toString();
  const auto code = code_of(graph, "forward");
  EXPECT_THAT(code, StartsWith("def tape_forward_0(a: Tensor) -> Tensor:\n"
                               "  return torch.tanh(a)\n"
                               "def forward(x: Tensor) -> Tensor:\n"));
  EXPECT_THAT(code, HasSubstr("= tape_forward_0(x, )\n"));
  EXPECT_EQ(graph->toString(), before) << "the graph is not changed";
}

TEST_F(GraphCode, WhatHasNoCodeIsAComment) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %y : Tensor = prim::no_such_operator(%x)
  return (%y))");
  EXPECT_THAT(code_of(graph, "forward"),
              AllOf(StartsWith("# TorchScript has no code for this graph: "),
                    HasSubstr("\n#   %y : Tensor = prim::no_such_operator(%x)\n")));
}

TEST_F(GraphCode, ModulesThatCppLowersWriteTheirFiles) {
  const test::TemporaryFolder folder;
  test::ScopedEnv env;
  env.set("PROJECT_ROOT", folder.path());
  env.set("MODEL_NAME", "cpp");
  env.set("RUN_ID", "run");
  auto model = test::make_module("Model");
  model.register_module("first", test::make_linear(4, 8));
  model.define("def forward(self, x):\n    return self.first.forward(x).tanh().sum()\n");
  lower(model, R"({"strategy": "all", "save_ir": true})")
      .forward({at::randn({5, 4})})
      .toTensor()
      .backward();
  const auto run = folder.path() / "IR_artifacts/cpp/runs/run";
  for (const auto* part : {"capture", "recompute"}) {
    for (const auto* kind : {"FW.txt", "FW.py", "BW.dot", "BW.svg"})
      EXPECT_TRUE(fs::exists(run / part / (std::string("forward.s0.r0.v0.") + kind))) << kind;
  }
}

}  // namespace
}  // namespace aten_recompute
