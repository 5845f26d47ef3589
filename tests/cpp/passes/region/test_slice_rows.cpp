// Each operator that is said to work row by row is run in slices along each dimension of its
// result, and compared with what it computes as a whole; so are the gradients of the stretch.
#include "passes/region/slice_rows.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/constant_propagation.h>

#include <optional>

#include "ir/symbols.h"
#include "passes/autodiff/differentiate.h"
#include "passes/region/build_sliced.h"
#include "passes/region/row_stretch.h"
#include "runtime/path_check.h"
#include "runtime/program.h"
#include "runtime/sliced.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using torch::jit::Graph;
using torch::jit::Node;
using Dimensions = std::vector<int64_t>;

class SliceRows : public test::TorchTest {};

// Returns the graph of a function with these parameters and this result.
std::shared_ptr<Graph> graph_of(const std::string& parameters, const std::string& body) {
  torch::jit::Module module("M");
  module.define("def forward(self, " + parameters + "):\n" + body);
  auto graph = module.get_method("forward").graph()->copy();
  graph->eraseInput(0);
  torch::jit::ConstantPropagation(graph);
  return graph;
}

std::vector<c10::IValue> run(const std::shared_ptr<Graph>& graph,
                             const std::vector<c10::IValue>& inputs) {
  const Program program(graph);
  auto registers = program.start(inputs);
  program.run(registers, 0, program.instructions().size());
  std::vector<c10::IValue> outputs;
  for (size_t i = 0; i < graph->outputs().size(); ++i)
    outputs.push_back(program.take_output(registers, i));
  return outputs;
}

// Returns forward and backward of the graph as one graph that takes gradients of ones.
std::vector<at::Tensor> results_and_gradients(const std::shared_ptr<Graph>& graph,
                                              std::vector<c10::IValue> inputs) {
  std::vector<bool> requires_grad;
  for (const auto& input : inputs)
    requires_grad.push_back(input.isTensor() && input.toTensor().is_floating_point());
  const auto joint =
      differentiate(graph, requires_grad, std::vector<bool>(graph->outputs().size(), true));
  const auto outputs = run(graph, inputs);
  for (const auto output : joint.vjp_outputs)
    inputs.emplace_back(
        at::arange(outputs[output].toTensor().numel(), outputs[output].toTensor().options())
            .reshape(outputs[output].toTensor().sizes())
            .cos());
  joint.backward_start->destroy();
  std::vector<at::Tensor> tensors;
  for (auto& value : run(joint.graph, inputs))
    tensors.push_back(value.toTensor());
  return tensors;
}

// Returns the dimensions of the result along which the graph's last operator can be sliced, after
// it has run so, into three slices that are not equally long.
Dimensions sliced_dimensions(const std::shared_ptr<Graph>& graph,
                             const std::vector<c10::IValue>& inputs) {
  const auto whole = results_and_gradients(graph, inputs);
  const ForwardTensors tensors(graph, std::vector<bool>(inputs.size(), false), inputs);
  Dimensions found;
  for (int64_t dimension = 0; dimension < whole[0].dim(); ++dimension) {
    const auto copy = graph->copy();
    auto known = tensors.of(*copy);
    const OrderedNodes nodes(*copy);
    const auto seed = nodes.index_of(copy->outputs()[0]->node()).value();
    const auto stretch = find_stretch(nodes, {seed, dimension, 0, nodes.size()}, known);
    if (!stretch)
      continue;
    found.push_back(dimension);
    build_sliced(*copy, nodes, *stretch, /*slices=*/3, known);
    copy->lint();
    const auto sliced = results_and_gradients(copy, inputs);
    EXPECT_EQ(sliced.size(), whole.size());
    for (size_t i = 0; i < std::min(whole.size(), sliced.size()); ++i)
      EXPECT_TRUE(at::allclose(sliced[i], whole[i], 1e-10, 1e-12))
          << "dimension " << dimension << ", result " << i << "\n"
          << *copy;
  }
  return found;
}

at::Tensor random(at::IntArrayRef sizes) {
  return at::randn(sizes, at::kDouble);
}

at::Tensor indices(at::IntArrayRef sizes, int64_t end) {
  return at::randint(end, sizes, at::kLong);
}

struct OperatorCase {
  std::string parameters;
  std::string result;
  std::vector<c10::IValue> inputs;
  Dimensions dimensions;
};

TEST_F(SliceRows, OperatorsWorkRowByRow) {
  const auto x = random({5, 7, 4});
  const std::vector<OperatorCase> cases{
      {"x", "torch.gelu(x)", {x}, {0, 1, 2}},
      {"x, y", "x * y", {x, random({7, 1})}, {0, 1, 2}},
      {"x, y", "torch.where(x > 0, x, y)", {x, random({4})}, {0, 1, 2}},
      {"x, w, b", "torch.linear(x, w, b)", {x, random({6, 4}), random({6})}, {0, 1, 2}},
      {"x, y", "torch.matmul(x, y)", {x, random({4, 6})}, {0, 1, 2}},
      {"x, y", "torch.matmul(x, y)", {x, random({5, 4, 6})}, {0, 1, 2}},
      {"x, y", "torch.matmul(x, y)", {x, random({4})}, {0, 1}},
      {"x, y", "torch.matmul(x, y)", {random({7}), random({5, 7, 4})}, {0, 1}},
      {"x, y", "torch.bmm(x, y)", {x, random({5, 4, 6})}, {0, 1, 2}},
      {"a, x, y", "torch.addmm(a, x, y)", {random({6}), random({5, 4}), random({4, 6})}, {0, 1}},
      {"x, y", "torch.einsum('bij,bjk->bki', [x, y])", {x, random({5, 4, 6})}, {0, 1, 2}},
      {"x, w", "torch.conv1d(x, w, None)", {x, random({6, 7, 2})}, {0, 1}},
      {"x, w", "torch.conv2d(x, w, None)", {random({5, 3, 6, 6}), random({4, 3, 2, 2})}, {0, 1}},
      {"x, w",
       "torch.conv_transpose2d(x, w, None)",
       {random({5, 3, 6, 6}), random({3, 4, 2, 2})},
       {0, 1}},
      {"x, w, b",
       "torch.conv2d(x, w, b, groups=6)",
       {random({5, 6, 4, 4}), random({6, 1, 2, 2}), random({6})},
       {0, 1}},
      {"x, w, b",
       "torch.conv2d(x, w, b, groups=2)",
       {random({5, 6, 4, 4}), random({4, 3, 2, 2}), random({4})},
       {0}},
      {"x, w", "torch.layer_norm(x, [4], w)", {x, random({4})}, {0, 1}},
      {"x", "torch.layer_norm(x, [7, 4])", {x}, {0}},
      {"x", "torch.group_norm(x, 1)", {x}, {0}},
      {"x", "torch.instance_norm(x, None, None, None, None, True, 0.1, 1e-5, False)", {x}, {0}},
      {"x", "torch.softmax(x, 1)", {x}, {0, 2}},
      {"x", "torch.log_softmax(x, -1)", {x}, {0, 1}},
      {"x", "torch.cumsum(x, 0)", {x}, {1, 2}},
      {"x", "torch.sum(x, [1])", {x}, {0, 1}},
      {"x", "torch.sum(x, [1], True)", {x}, {0, 2}},
      {"x", "torch.mean(x, [0, 2])", {x}, {0}},
      {"x", "torch.amax(x, [-1])", {x}, {0, 1}},
      {"x", "torch.logsumexp(x, [1])", {x}, {0, 1}},
      {"x", "torch.linalg_vector_norm(x, 2, [1])", {x}, {0, 1}},
      {"x", "torch.linalg_norm(x, None, [1])", {x}, {0, 1}},
      {"x", "torch.linalg_norm(x[0], 'fro')", {x}, {}},
      {"x, y", "torch.tensordot(x, y, [2], [0])", {x, random({4, 3, 2})}, {0, 1, 2, 3}},
      {"x, y", "torch.tensordot(x, y, [0, 2], [-1, 0])", {x, random({4, 3, 5})}, {0, 1}},
      {"x", "x.transpose(0, 1)", {x}, {0, 1, 2}},
      {"x", "x.permute([2, 0, 1]).contiguous()", {x}, {0, 1, 2}},
      {"x", "x.view([5, 28])", {x}, {0}},
      {"x", "x.view([-1, 7, 2, 2])", {x}, {0}},
      {"x", "x.reshape([35, 4])", {x}, {}},
      {"x", "x.reshape([x.size(0) * x.size(1), 4])", {x}, {}},
      {"x", "x.view([x.size(0), -1])", {x}, {0}},
      {"x", "x.view([x.size(0), x.size(1), 2, -1])", {x}, {0, 1}},
      {"x", "x.view([x.size(0) + 0, -1])", {x}, {}},
      {"x", "x.flatten(1)", {x}, {0}},
      {"x", "x.unsqueeze(1)", {x}, {0, 2, 3}},
      {"x", "x.select(1, 2)", {x}, {0, 1}},
      {"x", "x[:, 1:5]", {x}, {0, 2}},
      {"x", "x.unsqueeze(0).expand([3, 5, 7, 4])", {x}, {}},
      {"x", "x.unsqueeze(0).expand([3, x.size(0), x.size(1), 4])", {x}, {}},
      {"x", "x.unsqueeze(0).expand([3, -1, 7, -1])", {x}, {1, 3}},
      {"x, y", "x.expand_as(y)", {random({7, 1}), random({5, 7, 4})}, {0, 1, 2}},
      {"x, y", "x.view_as(y)", {x, random({5, 7, 2, 2})}, {0}},
      {"x, y", "torch.cat([x, y], 1)", {x, random({5, 2, 4})}, {0, 2}},
      {"x, y", "torch.stack([x, y], 1)", {x, random({5, 7, 4})}, {0, 2, 3}},
      {"x, i", "torch.index_select(x, 1, i)", {x, indices({9}, 7)}, {0, 1, 2}},
      {"x, i", "x[:, i]", {x, indices({3, 9}, 7)}, {0, 1, 2, 3}},
      {"x, i", "x[i]", {x, indices({9}, 5)}, {0, 1, 2}},
      {"x, i", "torch.gather(x, 2, i)", {x, indices({5, 7, 3}, 4)}, {0, 1}},
      {"w, i", "torch.embedding(w, i)", {random({6, 4}), indices({5, 3}, 6)}, {0, 1}},
      {"x, y", "torch.cdist(x, y)", {random({5, 3}), random({7, 3})}, {0, 1}},
      {"x", "torch.max_pool2d(x, [2, 2])", {random({3, 4, 6, 6})}, {0, 1}},
      {"x", "torch.avg_pool1d(x, [2])", {x}, {0, 1}},
      {"x", "torch.adaptive_avg_pool2d(x, [1, 1])", {random({3, 4, 6, 6})}, {0, 1}},
      {"x", "torch.max_pool2d(x, [3, 3], [1, 1], [1, 1])", {random({3, 6, 5})}, {0}},
      {"x", "x.squeeze(1)", {random({5, 1, 4})}, {0}},
      {"x", "x.squeeze(0)", {x}, {}},
      {"x", "x.flatten(0, 1)", {random({1, 7, 4})}, {}},
      {"x", "torch.constant_pad_nd(x, [1, 2])", {x}, {0, 1}},
      {"x", "torch.triu(x)", {x}, {0}},
      {"q, k, v",
       "torch.scaled_dot_product_attention(q, k, v)",
       {random({3, 2, 5, 4}), random({3, 2, 6, 4}), random({3, 2, 6, 4})},
       {0, 1, 2}},
      {"q, k, v",
       "torch.scaled_dot_product_attention(q, k, v, None, 0.0, True)",
       {random({3, 2, 5, 4}), random({3, 2, 5, 4}), random({3, 2, 5, 4})},
       {0, 1}},
      {"x, m, v",
       "torch.batch_norm(x, None, None, m, v, True, 0.1, 1e-5, False)",
       {x, random({7}), random({7}).abs()},
       {}},
      {"x", "torch.sort(x, 1)[0]", {x}, {}},
  };
  for (const auto& each : cases) {
    SCOPED_TRACE(each.result);
    const auto graph = graph_of(each.parameters, "  return " + each.result + "\n");
    EXPECT_EQ(sliced_dimensions(graph, each.inputs), each.dimensions);
  }
}

struct SlicedGraph {
  std::shared_ptr<Graph> graph;
  Node* node = nullptr;  // null: there is no stretch
};

// Returns a copy of the graph in which a stretch along `dimension` of the value `name`, as large as
// possible, runs in three slices. TorchScript calls that value "h.1".
SlicedGraph sliced_at(const std::shared_ptr<Graph>& graph, const std::string& name,
                      int64_t dimension, const std::vector<c10::IValue>& inputs) {
  const ForwardTensors tensors(graph, std::vector<bool>(inputs.size(), false), inputs);
  SlicedGraph sliced{graph->copy()};
  auto known = tensors.of(*sliced.graph);
  const OrderedNodes nodes(*sliced.graph);
  const auto seed = nodes.index_of(test::find_value(*sliced.graph, name + ".1")->node()).value();
  if (const auto stretch = find_stretch(nodes, {seed, dimension, 0, nodes.size()}, known)) {
    sliced.node = build_sliced(*sliced.graph, nodes, *stretch, 3, known);
    sliced.graph->lint();
  }
  return sliced;
}

void expect_same(const std::shared_ptr<Graph>& sliced, const std::shared_ptr<Graph>& whole,
                 const std::vector<c10::IValue>& inputs) {
  const auto expected = results_and_gradients(whole, inputs);
  const auto actual = results_and_gradients(sliced, inputs);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i)
    EXPECT_TRUE(at::allclose(actual[i], expected[i], 1e-10, 1e-12)) << i;
}

TEST_F(SliceRows, ConvolutionsAreSumsOverChannels) {
  const std::vector<std::pair<std::string, std::vector<c10::IValue>>> cases{
      {"torch.conv2d(x, w, b)", {random({5, 6, 4, 4}), random({4, 6, 2, 2}), random({4})}},
      {"torch.conv2d(x, w)", {random({5, 6, 4, 4}), random({4, 6, 2, 2}), random({4})}},
      {"torch.conv3d(x, w, b, padding='same')",
       {random({2, 6, 4, 4, 4}), random({4, 6, 2, 2, 2}), random({4})}},
      {"torch.conv_transpose1d(x, w, b)", {random({5, 6, 4}), random({6, 4, 2}), random({4})}},
  };
  for (const auto& [call, inputs] : cases) {
    SCOPED_TRACE(call);
    const auto graph = graph_of("x, w, b", "  y = " + call + "\n  return torch.tanh(y)\n");
    const auto sliced = sliced_at(graph, "y", kSummed, inputs);
    ASSERT_NE(sliced.node, nullptr);
    EXPECT_THAT(sliced.node->is(symbols::kResultRows), ElementsAre(kSummed));
    expect_same(sliced.graph, graph, inputs);
  }
}

TEST_F(SliceRows, ANetworkOverRowsEndsInASum) {
  const auto graph = graph_of("x, v, w, y", R"(
  h = torch.gelu(torch.linear(x, v))
  e = torch.linear(h, w)
  return torch.sum(e * y)
)");
  const std::vector<c10::IValue> inputs{random({10, 3}), random({8, 3}), random({1, 8}),
                                        random({10, 1})};
  const auto sliced = sliced_at(graph, "h", 0, inputs);
  ASSERT_NE(sliced.node, nullptr);
  EXPECT_THAT(sliced.node->is(symbols::kResultRows), ElementsAre(kSummed));
  EXPECT_THAT(sliced.node->is(symbols::kOperandRows), ElementsAre(0, kWhole, kWhole, 0));
  expect_same(sliced.graph, graph, inputs);
}

TEST_F(SliceRows, EdgesAreGatheredAndScattered) {
  const auto graph = graph_of("x, w, i, j", R"(
  m = torch.tanh(torch.index_select(x, 0, j) + torch.linear(torch.index_select(x, 0, i), w))
  return torch.index_add(x, 0, i, m)
)");
  const std::vector<c10::IValue> inputs{random({6, 4}), random({4, 4}), indices({20}, 6),
                                        indices({20}, 6)};
  const auto sliced = sliced_at(graph, "m", 0, inputs);
  ASSERT_NE(sliced.node, nullptr);
  EXPECT_THAT(sliced.node->is(symbols::kResultRows), ElementsAre(kSummed));
  expect_same(sliced.graph, graph, inputs);
}

// As PyTorch Geometric does it.
TEST_F(SliceRows, MessagesAreScatteredToZerosOfTheirType) {
  const auto graph = graph_of("x, i, j", R"(
  m = torch.index_select(x, 0, j)
  k = m.size()
  e = i.view([-1, 1]).expand(m.size())
  z = m.new_zeros([x.size(0), k[1]])
  o = torch.ones(k) * len(k)
  y = torch.scatter_add(z, 0, e, m)
  return torch.relu(y) * float(k[0]) * len(k) + o.sum()
)");
  const std::vector<c10::IValue> inputs{random({6, 4}), indices({20}, 6), indices({20}, 6)};
  const auto sliced = sliced_at(graph, "y", kSummed, inputs);
  ASSERT_NE(sliced.node, nullptr);
  EXPECT_THAT(sliced.node->is(symbols::kResultRows), ::testing::Contains(kSummed));
  EXPECT_EQ(test::find_nodes(*sliced.graph, "aten::index_select").size(), 0);
  expect_same(sliced.graph, graph, inputs);
}

// As the code does that e3nn generates for tensor products.
TEST_F(SliceRows, AStretchReachesFromGatheringToScattering) {
  const auto graph = graph_of("x, v, w, i, j", R"(
  h = torch.tanh(torch.index_select(x, 0, j))
  a = torch.linear(v, w)
  n = torch.broadcast_tensors([h.narrow(1, 0, 1), a.narrow(1, 0, 1)])[0].size()[0]
  a = a.expand([n, -1]).reshape([n, 4])
  p = torch.einsum('zu,zu->zu', [h.expand([n, -1]), a])
  q = torch.tensordot(a.reshape([n, 2, 2]), v.narrow(0, 0, 2).narrow(1, 0, 2), [2], [0])
  y = torch.cat([p, q.reshape([n, -1])], 1)
  e = i.unsqueeze(-1).expand(y.size())
  z = torch.zeros([x.size(0), y.size(1)], dtype=y.dtype)
  s = torch.scatter_add(z, 0, e, y)
  return torch.relu(s)
)");
  const std::vector<c10::IValue> inputs{random({6, 4}), random({20, 3}), random({4, 3}),
                                        indices({20}, 6), indices({20}, 6)};
  for (const auto* seed : {"p", "q", "y"}) {
    const auto sliced = sliced_at(graph, seed, 0, inputs);
    ASSERT_NE(sliced.node, nullptr) << seed;
    EXPECT_THAT(sliced.node->is(symbols::kResultRows), ::testing::Contains(kSummed)) << seed;
    for (const auto* inside : {"aten::index_select", "aten::linear", "aten::cat"})
      EXPECT_EQ(test::find_nodes(*sliced.graph, inside).size(), 0) << seed << " " << inside;
    expect_same(sliced.graph, graph, inputs);
  }
}

// The second layer reads sums of all rows of the first one.
TEST_F(SliceRows, AStretchBeginsBehindWhatItWouldNeedAsAWhole) {
  const auto graph = graph_of("x, v, w, i, j", R"(
  a = torch.linear(v, w)
  b = torch.tanh(a)
  x = torch.index_add(x, 0, i, torch.index_select(x, 0, j) * b)
  m = torch.index_select(x, 0, j)
  y = m * a
  return torch.index_add(x, 0, i, y)
)");
  const std::vector<c10::IValue> inputs{random({6, 4}), random({20, 3}), random({4, 3}),
                                        indices({20}, 6), indices({20}, 6)};
  const auto sliced = sliced_at(graph, "y", 0, inputs);
  ASSERT_NE(sliced.node, nullptr);
  EXPECT_THAT(sliced.node->is(symbols::kResultRows), ElementsAre(kSummed));
  EXPECT_EQ(test::find_nodes(*sliced.graph, "aten::index_select").size(), 1);
  expect_same(sliced.graph, graph, inputs);
}

TEST_F(SliceRows, ChecksOfThePathRunInsideAsWell) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %w : Tensor):
  %one : int = prim::Constant[value=1]()
  %four : int = prim::Constant[value=4]()
  %yes : bool = prim::Constant[value=1]()
  %h : Tensor = aten::relu(%x)
  %columns : int = aten::size(%h, %one)
  %is_four : bool = aten::eq(%columns, %four)
  aten_recompute::check_path(%is_four, %yes, %one)
  %m.1 : Tensor = aten::mm(%h, %w)
  %y : Tensor = aten::tanh(%m.1)
  return (%y))");
  const std::vector<c10::IValue> inputs{random({10, 4}), random({4, 3})};
  const auto sliced = sliced_at(graph, "m", 0, inputs);
  ASSERT_NE(sliced.node, nullptr);
  EXPECT_EQ(
      test::find_nodes(*sliced.node->g(c10::attr::Subgraph), "aten_recompute::check_path").size(),
      1);
  EXPECT_FALSE(sliced.node->hasAttribute(kMayFailEarly));
  expect_same(sliced.graph, graph, inputs);
  path_left();
  EXPECT_ANY_THROW(run(sliced.graph, {random({10, 5}), random({4, 3})}));
  EXPECT_EQ(path_left(), 1);
}

TEST_F(SliceRows, SizesOfInnerValuesAreReadOutside) {
  const auto graph = graph_of("x, w", R"(
  h = torch.linear(x, w)
  n = h.size(0)
  k = h.size(1)
  y = torch.relu(h).view([n, k // 2, 2])
  z = torch.ones([k, n])
  return torch.sum(y, [2]) + torch.mean(z)
)");
  const std::vector<c10::IValue> inputs{random({10, 3}), random({8, 3})};
  const auto sliced = sliced_at(graph, "h", 0, inputs);
  ASSERT_NE(sliced.node, nullptr);
  EXPECT_EQ(test::find_nodes(*sliced.graph, "aten::view").size(), 0);
  expect_same(sliced.graph, graph, inputs);
}

TEST_F(SliceRows, WhatNeedsAllRowsComesAfterTheStretch) {
  const auto graph = graph_of("x, w", R"(
  h = torch.linear(x, w)
  s = torch.softmax(h, 0)
  y = torch.relu(h)
  z = torch.exp(y)
  return z * s
)");
  const std::vector<c10::IValue> inputs{random({10, 3}), random({8, 3})};
  const auto sliced = sliced_at(graph, "h", 0, inputs);
  ASSERT_NE(sliced.node, nullptr);
  EXPECT_THAT(test::listing(*sliced.graph)[0], ::testing::HasSubstr("aten_recompute::sliced"));
  EXPECT_EQ(test::find_nodes(*sliced.graph, "aten::softmax").size(), 1);
  EXPECT_EQ(test::find_nodes(*sliced.graph, "aten::relu").size(), 0);
  expect_same(sliced.graph, graph, inputs);
}

TEST_F(SliceRows, RandomNumbersAndStatisticsStayOutside) {
  const auto graph = graph_of("x, m, v", R"(
  h = torch.relu(x)
  d = torch.dropout(h, 0.5, True)
  n = torch.batch_norm(d, None, None, m, v, False, 0.1, 1e-5, False)
  return torch.exp(n)
)");
  const std::vector<c10::IValue> inputs{random({10, 3}), random({3}), random({3}).abs()};
  for (const auto* name : {"d", "n"})
    EXPECT_EQ(sliced_at(graph, name, 0, inputs).node, nullptr) << name;
}

TEST_F(SliceRows, OtherNumbersOfRowsRunAsWell) {
  const auto graph = graph_of("x, y", "  h = x + y\n  return torch.exp(h) * 2.0\n");
  const auto sliced = sliced_at(graph, "h", 0, {random({10, 3}), random({10, 3})});
  ASSERT_NE(sliced.node, nullptr);
  for (const auto& [rows_of_x, rows_of_y] :
       std::vector<std::pair<int64_t, int64_t>>{{7, 7}, {1, 1}, {0, 0}, {2, 2}, {8, 1}, {1, 8}}) {
    SCOPED_TRACE(rows_of_x);
    expect_same(sliced.graph, graph, {random({rows_of_x, 3}), random({rows_of_y, 3})});
  }
}

TEST_F(SliceRows, WhatBroadcastsAtFirstMayHaveRowsLater) {
  const auto graph = graph_of("x, y", "  h = torch.sigmoid(x * y)\n  return torch.sum(h, [0])\n");
  const auto sliced = sliced_at(graph, "h", 0, {random({10, 3}), random({1, 3})});
  ASSERT_NE(sliced.node, nullptr);
  for (const auto& [rows_of_x, rows_of_y] :
       std::vector<std::pair<int64_t, int64_t>>{{10, 1}, {10, 10}, {1, 10}, {3, 3}})
    expect_same(sliced.graph, graph, {random({rows_of_x, 3}), random({rows_of_y, 3})});
  const auto sums = graph_of("x, y",
                             "  h = torch.tanh(x)\n"
                             "  return torch.einsum('nc,nd->cd', [h, y])\n");
  const auto summed = sliced_at(sums, "h", 0, {random({10, 3}), random({1, 4})});
  ASSERT_NE(summed.node, nullptr);
  for (const int64_t rows : {1, 10})
    expect_same(summed.graph, sums, {random({10, 3}), random({rows, 4})});
}

TEST_F(SliceRows, DimensionsBeforeTheRowsAreKnown) {
  const auto graph = graph_of("x, b: int, p: int, q: int",
                              "  h = torch.tanh(x)\n"
                              "  return torch.sum(h.view([b, 6, p, q]).exp(), [1])\n");
  for (const auto* name : {"h"}) {
    const auto sliced = sliced_at(graph, name, 0, {random({6, 2, 4}), 1, 2, 4});
    expect_same(sliced.graph, graph, {random({6, 4, 2}), 2, 4, 1});
  }
}

TEST_F(SliceRows, ANumberOfRowsMayBeZero) {
  const auto graph = graph_of("x",
                              "  h = torch.tanh(x)\n  n = x.size(0)\n"
                              "  return h.reshape([n, x.size(1) * 4]) * 2.0\n");
  const auto sliced = sliced_at(graph, "h", 0, {random({6, 2, 4})});
  ASSERT_NE(sliced.node, nullptr);
  for (const auto& [rows, columns] :
       std::vector<std::pair<int64_t, int64_t>>{{6, 2}, {0, 2}, {6, 0}, {0, 0}})
    expect_same(sliced.graph, graph, {random({rows, columns, 4})});
}

TEST_F(SliceRows, ResultsLieInMemoryAsThoseOfTheWhole) {
  const auto graph = graph_of("x", "  h = torch.tanh(x)\n  return torch.exp(h)\n");
  for (const auto& x : {random({8, 5, 3}).transpose(0, 1), random({5, 8, 3}).transpose(1, 2),
                        random({7, 4}).t(), random({4, 1, 6})}) {
    const auto sliced = sliced_at(graph, "h", 0, {x});
    ASSERT_NE(sliced.node, nullptr);
    EXPECT_EQ(run(sliced.graph, {x})[0].toTensor().strides(), x.tanh().exp().strides());
  }
}

TEST_F(SliceRows, ListsOfTensorsAreTakenApartWhereTheyAreMade) {
  const auto graph = graph_of("x", R"(
  h = torch.tanh(x)
  a, b = h.split(4, -1)
  return a * b
)");
  const std::vector<c10::IValue> inputs{random({10, 8})};
  const ForwardTensors tensors(graph, {true}, inputs);
  const auto sliced = slice_rows(*graph, tensors, {0});
  for (const auto* node : test::find_nodes(*sliced.graph, "aten_recompute::sliced")) {
    for (const auto* output : node->outputs())
      EXPECT_NE(output->type()->kind(), c10::TypeKind::ListType);
  }
  expect_same(sliced.graph, graph, inputs);
}

TEST_F(SliceRows, SizesThatFitNoSliceRunAsAWhole) {
  for (const auto* size : {"-1", "n"}) {
    const auto graph = graph_of(
        "x, n: int", std::string("  h = torch.exp(x)\n  return h.view([") + size + ", 4]) * 2.0\n");
    const auto sliced = sliced_at(graph, "h", 0, {random({6, 4}), 6});
    ASSERT_NE(sliced.node, nullptr);
    expect_same(sliced.graph, graph, {random({3, 8}), 6});
  }
}

TEST_F(SliceRows, AStretchBeginsAndEndsWhereLittleIsAlive) {
  const auto graph = graph_of("x, v, w", R"(
  a = torch.tanh(x)
  h = torch.linear(a, v)
  g = torch.gelu(h)
  y = torch.linear(g, w)
  return torch.tanh(y)
)");
  const std::vector<c10::IValue> inputs{random({64, 4}), random({64, 4}), random({4, 64})};
  const ForwardTensors tensors(graph, {true, true, true}, inputs);
  const auto large = 64 * 64 * 8;
  const auto sliced = slice_rows(*graph, tensors, {large});
  EXPECT_EQ(sliced.num_stretches, 1);
  const auto nodes = test::find_nodes(*sliced.graph, "aten_recompute::sliced");
  ASSERT_EQ(nodes.size(), 1);
  EXPECT_THAT(test::listing(*nodes[0]->g(c10::attr::Subgraph)),
              ElementsAre("h.1 = aten::linear($0, $1, None)", "g.1 = aten::gelu(h.1, none)",
                          "y.1 = aten::linear(g.1, $2, None)"));
  expect_same(sliced.graph, graph, inputs);
  EXPECT_EQ(slice_rows(*graph, tensors, {100 * large}).num_stretches, 0);
}

TEST_F(SliceRows, EachStretchHasSlicesOfItsOwnLength) {
  const auto graph = graph_of("x, v, w", R"(
  y = torch.linear(torch.gelu(torch.linear(torch.tanh(x), v)), w)
  z = torch.softmax(y, 0)
  return torch.linear(torch.gelu(torch.linear(z, v)), w)
)");
  const std::vector<c10::IValue> inputs{random({640, 4}), random({64, 4}), random({4, 64})};
  const ForwardTensors tensors(graph, {true, true, true}, inputs);
  const int64_t limit = 640 * 64 * 8;
  const auto slices = [&](std::vector<int64_t> coarseness) {
    const auto sliced = slice_rows(*graph, tensors, {limit, std::move(coarseness)});
    expect_same(sliced.graph, graph, inputs);
    std::vector<int64_t> counts;
    for (const auto* node : test::find_nodes(*sliced.graph, "aten_recompute::sliced"))
      counts.push_back(node->i(symbols::kSlices));
    EXPECT_EQ(counts.size(), sliced.num_stretches);
    return counts;
  };
  const auto finest = slices({});
  ASSERT_EQ(finest.size(), 2);
  EXPECT_EQ(finest[0], finest[1]);
  EXPECT_GT(finest[0], 4);
  EXPECT_EQ(slices({1}), finest);
  const auto coarse = slices({8});
  EXPECT_LT(coarse[0], finest[0]);
  EXPECT_GT(coarse[0], 1);
  EXPECT_EQ(coarse[0], coarse[1]);
  // The last number holds for the stretches that follow.
  const std::vector<int64_t> first{coarse[0], finest[1]};
  const std::vector<int64_t> second{finest[0], coarse[1]};
  EXPECT_EQ(slices({8, 1}), first);
  EXPECT_EQ(slices({1, 8}), second);
  EXPECT_EQ(slices({8, 1, 8}), first);
}

TEST_F(SliceRows, AStretchCanBeDifferentiatedTwice) {
  const auto graph =
      graph_of("x, w", "  h = torch.linear(x, w)\n  return torch.sum(torch.tanh(h))\n");
  const std::vector<c10::IValue> inputs{random({10, 3}), random({8, 3})};
  const auto sliced = sliced_at(graph, "h", 0, inputs);
  ASSERT_NE(sliced.node, nullptr);
  std::vector<std::vector<at::Tensor>> results;
  for (const auto& each : {graph, sliced.graph}) {
    auto joint = differentiate(each, {true, true}, {true});
    joint.backward_start->destroy();
    joint.graph->eraseOutput(0);
    auto again = inputs;
    again.emplace_back(at::ones({}, at::kDouble));
    results.push_back(results_and_gradients(joint.graph, again));
  }
  ASSERT_EQ(results[0].size(), results[1].size());
  for (size_t i = 0; i < results[0].size(); ++i)
    EXPECT_TRUE(at::allclose(results[0][i], results[1][i], 1e-10, 1e-12)) << i;
}

}  // namespace
}  // namespace aten_recompute
