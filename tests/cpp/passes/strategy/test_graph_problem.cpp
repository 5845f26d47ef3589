#include "passes/strategy/graph_problem.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/autodiff/differentiate.h"
#include "passes/profile/profile.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_value;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class GraphProblemTest : public test::TorchTest {};

std::vector<std::string> names(const Problem& problem, std::span<const int32_t> values) {
  std::vector<std::string> result;
  for (auto value : values)
    result.push_back(problem.value_names[value]);
  return result;
}

// h = mm(x, w), y = relu(h), and dw reads a view of x.
JointGraph layer() {
  return test::parse_joint(
      {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {1}}, R"(
graph(%x : Tensor, %w : Tensor, %dy : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h : Tensor = aten::mm(%x, %w)
  %size : int[] = aten::size(%h)
  %y : Tensor = aten::relu(%h)
  aten_recompute::backward_start()
  %dh : Tensor = aten::threshold_backward(%dy, %y, %zero)
  %xt : Tensor = aten::t(%x)
  %dw : Tensor = aten::mm(%xt, %dh)
  return (%y, %dw)
)");
}

TEST_F(GraphProblemTest, TheProblemHasTheNodesAndTensorsOfTheJointGraph) {
  const auto joint = layer();
  const auto graph = make_problem(joint, nullptr);
  const auto& problem = graph.problem;
  EXPECT_THAT(problem.node_names, ElementsAre("aten::mm", "aten::size", "aten::relu",
                                              "aten::threshold_backward", "aten::t", "aten::mm"));
  EXPECT_EQ(problem.num_forward, 3U);
  EXPECT_EQ(problem.num_nodes, 6U);
  // Constants and sizes are no values of the problem.
  EXPECT_THAT(problem.value_names, ElementsAre("x", "w", "dy", "h", "y", "dh", "xt", "dw"));
  EXPECT_THAT(names(problem, problem.inputs[0]), ElementsAre("x", "w"));
  EXPECT_THAT(names(problem, problem.outputs[0]), ElementsAre("h"));
  EXPECT_THAT(problem.outputs[1], IsEmpty());
  EXPECT_THAT(names(problem, problem.inputs[3]), ElementsAre("dy", "y"));
  EXPECT_THAT(problem.is_view, ElementsAre(0, 0, 0, 0, 1, 0));
  EXPECT_THAT(names(problem, problem.incoming), ElementsAre("dy"));
  EXPECT_THAT(names(problem, problem.results), ElementsAre("y", "dw"));
  // Without a profile values have no bytes, and only operators that always view are views.
  EXPECT_THAT(problem.bytes, ::testing::Each(0));
  EXPECT_THAT(problem.held, ElementsAre(1, 1, 0, 0, 0, 0, 0));
  EXPECT_EQ(problem.storages[graph.index.at(find_value(*joint.graph, "xt"))][0],
            problem.storages[graph.index.at(find_value(*joint.graph, "x"))][0]);
  for (size_t i = 0; i < graph.values.size(); ++i)
    EXPECT_EQ(graph.index.at(graph.values[i]), static_cast<int32_t>(i));
}

TEST_F(GraphProblemTest, AProfileGivesBytesAndCosts) {
  const auto joint = layer();
  const auto costs = profile(joint, {at::randn({4, 8}), at::randn({8, 16})}, CostModel::kFlops);
  const auto graph = make_problem(joint, &costs);
  const auto& problem = graph.problem;
  auto bytes = [&](const char* name) {
    return problem.value_bytes(graph.index.at(find_value(*joint.graph, name)));
  };
  EXPECT_EQ(bytes("x"), 0);  // the caller's
  EXPECT_EQ(bytes("h"), 4 * 16 * 4);
  EXPECT_EQ(bytes("dy"), 4 * 16 * 4);
  EXPECT_EQ(bytes("dw"), 8 * 16 * 4);
  EXPECT_EQ(bytes("xt"), 0);
  EXPECT_EQ(problem.flops[0], 2.0 * 4 * 16 * 8);
  EXPECT_GT(problem.seconds[0], 0.0);
  EXPECT_EQ(problem.seconds[1], 0.0);  // reading a size
}

// relu may overwrite h, which the program made, but not x, which is the caller's.
TEST_F(GraphProblemTest, OnlyTheProgramsOwnMemoryIsOverwritten) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %of_x : Tensor = aten::relu(%x)
  %h : Tensor = aten::sin(%x)
  %of_h : Tensor = aten::relu(%h)
  return (%of_x, %of_h)
)");
  const auto graph = make_problem(joint, nullptr);
  EXPECT_THAT(graph.problem.overwrites[0], IsEmpty());
  EXPECT_THAT(names(graph.problem, graph.problem.overwrites[2]), ElementsAre("h"));
}

// tanh_backward overwrites h only if the gradient has the strides of h. That of a sum has not.
TEST_F(GraphProblemTest, AnExpandedOperandKeepsOthersFromBeingOverwritten) {
  auto overwritten = [](const char* gradient) {
    const auto joint = test::parse_joint(
        {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}},
        std::string(R"(
graph(%x : Tensor, %d : Tensor):
  %false : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %h : Tensor = aten::tanh(%x)
  %size : int[] = aten::size(%h)
  %y : Tensor = aten::sum(%h, %none)
  aten_recompute::backward_start()
  %dh : Tensor = )") +
            gradient + R"(
  %dx : Tensor = aten::tanh_backward(%dh, %h)
  return (%y, %dx)
)");
    const auto costs = profile(joint, {at::randn({4, 8})}, CostModel::kFlops);
    const auto graph = make_problem(joint, &costs);
    return names(graph.problem, graph.problem.overwrites[graph.problem.num_nodes - 1]);
  };
  EXPECT_THAT(overwritten("aten::mul(%h, %d)"), ElementsAre("dh", "h"));
  EXPECT_THAT(overwritten("aten::expand(%d, %size, %false)"), IsEmpty());
}

// The result of softmax is contiguous, whatever its operand is.
TEST_F(GraphProblemTest, RowsAreOverwrittenIfTheyAreContiguous) {
  const auto joint = test::parse_forward(R"(
graph(%x : Tensor):
  %false : bool = prim::Constant[value=0]()
  %dim : int = prim::Constant[value=1]()
  %h : Tensor = aten::sin(%x)
  %y : Tensor = aten::_softmax(%h, %dim, %false)
  return (%y)
)");
  auto overwritten = [&](const at::Tensor& x) {
    const auto costs = profile(joint, {x}, CostModel::kFlops);
    const auto graph = make_problem(joint, &costs);
    return names(graph.problem, graph.problem.overwrites[1]);
  };
  EXPECT_THAT(overwritten(at::randn({4, 8})), ElementsAre("h"));
  EXPECT_THAT(overwritten(at::randn({8, 4}).t()), IsEmpty());
  EXPECT_THAT(overwritten(at::empty({4, 8}, at::kMeta)), IsEmpty());
}

// Gradients that are added to existing ones are freed at once.
TEST_F(GraphProblemTest, AccumulatedGradientsAreNoResults) {
  const auto joint = layer();
  const auto attribute = make_problem(joint, nullptr, {false, true});
  EXPECT_THAT(names(attribute.problem, attribute.problem.results), ElementsAre("y"));
  // w is no attribute, so its gradient goes to the caller.
  const auto other = make_problem(joint, nullptr, {true, false});
  EXPECT_THAT(names(other.problem, other.problem.results), ElementsAre("y", "dw"));
}

// a and b are one tensor, a tied weight. Autograd sums their gradients in the memory of the first.
TEST_F(GraphProblemTest, ATensorThatIsTwoInputsHasOneGradient) {
  const auto joint = test::parse_joint(
      {.num_inputs = 3, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {1, 2}}, R"(
graph(%x : Tensor, %a : Tensor, %b : Tensor, %dy : Tensor):
  %h : Tensor = aten::mul(%x, %a)
  %y : Tensor = aten::mul(%h, %b)
  aten_recompute::backward_start()
  %db : Tensor = aten::mul(%dy, %h)
  %dh : Tensor = aten::mul(%dy, %b)
  %da : Tensor = aten::mul(%dh, %x)
  return (%y, %da, %db)
)");
  const auto x = at::randn({4}), tied = at::randn({4});
  const std::vector<bool> attributes{false, true, true};
  const auto same = profile(joint, {x, tied, tied}, CostModel::kFlops);
  EXPECT_THAT(same.same_as, ElementsAre(0, 1, 1));
  auto results = [&](const Profile& costs, const std::vector<bool>& accumulated) {
    const auto graph = make_problem(joint, &costs, accumulated);
    return names(graph.problem, graph.problem.results);
  };
  EXPECT_THAT(results(same, {}), ElementsAre("y", "db"));
  EXPECT_THAT(results(same, attributes), ElementsAre("y", "db"));
  // Two tensors that share memory have two gradients.
  const auto different = profile(joint, {x, tied, tied.view({4})}, CostModel::kFlops);
  EXPECT_THAT(different.same_as, ElementsAre(0, 1, 2));
  EXPECT_THAT(results(different, {}), ElementsAre("y", "da", "db"));
  EXPECT_THAT(results(different, attributes), ElementsAre("y"));
}

TEST_F(GraphProblemTest, ASavedViewKeepsItsBase) {
  const auto joint = test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %h : Tensor = aten::sin(%x)
  %t : Tensor = aten::t(%h)
  %c : Tensor = aten::cos(%x)
  %y : Tensor = aten::mm(%t, %c)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::mm(%dy, %c)
  %d2 : Tensor = aten::mm(%t, %d1)
  return (%y, %d2)
)");
  const auto graph = make_problem(joint, nullptr);
  const auto retention = retention_of(graph, test::plan_of(joint, {"t"}));
  auto dropped = [&](const char* name, size_t slot) {
    return retention.dropped(graph.index.at(find_value(*joint.graph, name)), slot);
  };
  EXPECT_FALSE(dropped("h", 0));
  EXPECT_TRUE(dropped("c", 0));
  EXPECT_FALSE(dropped("c", 1));  // a recomputed value is kept from then on
}

}  // namespace
}  // namespace aten_recompute
