#include "runtime/branch.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "ir/symbols.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

class BranchOperator : public test::TorchTest {};

// Returns a graph with one branch, which contains the graph of this text.
std::shared_ptr<torch::jit::Graph> with_branch(const std::string& ir) {
  const auto inner = test::parse(ir);
  auto graph = std::make_shared<torch::jit::Graph>();
  std::vector<torch::jit::Value*> inputs;
  for (const auto* input : inner->inputs())
    inputs.push_back(graph->addInput()->setType(input->type()));
  auto* branch = graph->create(symbols::kBranch, inputs, inner->outputs().size());
  branch->g_(c10::attr::Subgraph, inner);
  graph->insertNode(branch);
  for (size_t i = 0; i < inner->outputs().size(); ++i)
    graph->registerOutput(branch->output(i)->setType(inner->outputs()[i]->type()));
  return graph;
}

TEST_F(BranchOperator, ResultsDoNotShareMemory) {
  const auto graph = with_branch(R"(
graph(%c : bool, %x : Tensor):
  %y : Tensor, %z : Tensor = prim::If(%c)
    block0():
      -> (%x, %x)
    block1():
      %n : Tensor = aten::neg(%x)
      -> (%n, %n)
  return (%y, %z)
)");
  const auto x = at::randn({3});
  for (const bool answer : {true, false}) {
    const auto results = test::run_graph(graph, {answer, x});
    const auto y = results.at(0).toTensor();
    const auto z = results.at(1).toTensor();
    EXPECT_TRUE(y.equal(answer ? x : -x));
    EXPECT_TRUE(z.equal(y));
    EXPECT_FALSE(y.is_alias_of(x));
    EXPECT_FALSE(y.is_alias_of(z));
  }
}

TEST_F(BranchOperator, ErrorsOfItsOperatorsLeaveIt) {
  const auto graph = with_branch(R"(
graph(%c : bool, %x : Tensor):
  %y : Tensor = prim::If(%c)
    block0():
      %m : Tensor = aten::mm(%x, %x)
      -> (%m)
    block1():
      -> (%x)
  return (%y)
)");
  EXPECT_NO_THROW(test::run_graph(graph, {false, at::randn({2, 3})}));
  EXPECT_ANY_THROW(test::run_graph(graph, {true, at::randn({2, 3})}));
}

}  // namespace
}  // namespace aten_recompute
