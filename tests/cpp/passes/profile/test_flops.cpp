// Compares counts with 2 m n k, computed by hand.
#include "passes/profile/flops.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

class Flops : public test::TorchTest {};

at::Tensor sized(std::initializer_list<int64_t> sizes) {
  return at::empty(sizes, at::TensorOptions().device(at::kMeta));
}

// The formula reads only the operator's name from the node.
double count(const std::string& name, const std::vector<c10::IValue>& operands,
             const std::vector<c10::IValue>& results) {
  torch::jit::Graph graph;
  auto* node = graph.insertNode(graph.create(c10::Symbol::fromQualString(name)));
  return count_flops(node, operands, results);
}

TEST_F(Flops, ProductsCountTwoPerMultiplication) {
  EXPECT_DOUBLE_EQ(count("aten::mm", {sized({3, 4}), sized({4, 5})}, {sized({3, 5})}),
                   2.0 * 3 * 5 * 4);
  EXPECT_DOUBLE_EQ(count("aten::mv", {sized({3, 4}), sized({4})}, {sized({3})}), 2.0 * 3 * 4);
  EXPECT_DOUBLE_EQ(count("aten::matmul", {sized({4}), sized({4})}, {sized({})}), 2.0 * 4);
  EXPECT_DOUBLE_EQ(
      count("aten::addmm", {sized({5}), sized({3, 4}), sized({4, 5})}, {sized({3, 5})}),
      2.0 * 3 * 5 * 4);
  // The weight is n x k, and leading dimensions of the input are rows.
  const auto input = sized({2, 3, 8}), weight = sized({16, 8}), output = sized({2, 3, 16});
  EXPECT_DOUBLE_EQ(count("aten::linear", {input, weight, sized({16})}, {output}),
                   2.0 * (2 * 3) * 16 * 8);
  // The gradients are products of the same three sizes.
  EXPECT_DOUBLE_EQ(count("aten_recompute::linear_grad_weight", {output, input}, {weight}),
                   2.0 * (2 * 3) * 16 * 8);
  EXPECT_DOUBLE_EQ(count("aten_recompute::linear_grad_input", {output, weight}, {input}),
                   2.0 * (2 * 3) * 16 * 8);
}

TEST_F(Flops, BatchesMultiplyTheFlopsOfAProduct) {
  const auto a = sized({7, 3, 4}), b = sized({7, 4, 5}), c = sized({7, 3, 5});
  EXPECT_DOUBLE_EQ(count("aten::bmm", {a, b}, {c}), 7 * 2.0 * 3 * 5 * 4);
  EXPECT_DOUBLE_EQ(count("aten::baddbmm", {c, a, b}, {c}), 7 * 2.0 * 3 * 5 * 4);
  EXPECT_DOUBLE_EQ(count("aten::matmul", {a, sized({4, 5})}, {c}), 7 * 2.0 * 3 * 5 * 4);
  EXPECT_DOUBLE_EQ(count("aten::matmul", {a, sized({1, 4, 5})}, {c}), 7 * 2.0 * 3 * 5 * 4);
  EXPECT_DOUBLE_EQ(
      count("aten::matmul", {sized({2, 1, 3, 4}), sized({1, 7, 4, 5})}, {sized({2, 7, 3, 5})}),
      2 * 7 * 2.0 * 3 * 5 * 4);
  EXPECT_DOUBLE_EQ(
      count("aten::matmul", {sized({2, 7, 3, 4}), sized({2, 1, 4, 5})}, {sized({2, 7, 3, 5})}),
      2 * 7 * 2.0 * 3 * 5 * 4);
  // Dimensions are matched from the last one: the 7 of b goes with the second of a.
  EXPECT_DOUBLE_EQ(count("aten::matmul", {sized({2, 7, 3, 4}), b}, {sized({2, 7, 3, 5})}),
                   2 * 7 * 2.0 * 3 * 5 * 4);
}

// Two groups of 3 input and 4 output channels; each of the 2 * 8 * 10 * 10 results sums 3 * 3 * 3
// products.
TEST_F(Flops, ConvolutionsCountTheProductsPerResult) {
  const auto input = sized({2, 6, 10, 10}), weight = sized({8, 3, 3, 3});
  const auto output = sized({2, 8, 10, 10});
  const double forward = 2.0 * (2 * 8 * 10 * 10) * (3 * 3 * 3);
  EXPECT_DOUBLE_EQ(count("aten::conv2d", {input, weight, c10::IValue()}, {output}), forward);
  EXPECT_DOUBLE_EQ(count("aten::convolution", {input, weight}, {output}), forward);
  const at::Tensor none;
  EXPECT_DOUBLE_EQ(count("aten_recompute::convolution_backward", {output, input, weight, false},
                         {input, weight, none}),
                   2 * forward);
  // The first layer's input needs no gradient.
  EXPECT_DOUBLE_EQ(count("aten_recompute::convolution_backward", {output, input, weight, false},
                         {none, weight, sized({8})}),
                   forward);
  EXPECT_DOUBLE_EQ(count("aten_recompute::convolution_mode_backward", {output, input, weight},
                         {input, weight, none}),
                   2 * forward);
}

// Two groups of 3 input and 4 output channels; each of the 2 * 6 * 5 * 5 inputs is multiplied by
// 4 * 3 * 3 weights.
TEST_F(Flops, TransposedConvolutionsCountTheProductsPerInput) {
  const auto input = sized({2, 6, 5, 5}), weight = sized({6, 4, 3, 3});
  const auto output = sized({2, 8, 7, 7});
  const double forward = 2.0 * (2 * 6 * 5 * 5) * (4 * 3 * 3);
  EXPECT_DOUBLE_EQ(count("aten::conv_transpose2d", {input, weight, c10::IValue()}, {output}),
                   forward);
  EXPECT_DOUBLE_EQ(count("aten_recompute::convolution_backward", {output, input, weight, true},
                         {input, weight, sized({8})}),
                   2 * forward);
}

// Queries with keys and weights with values are two products of 16 x 24 x 8 per head.
TEST_F(Flops, AttentionCountsItsTwoProducts) {
  const auto query = sized({2, 4, 16, 8}), key = sized({2, 4, 24, 8});
  EXPECT_DOUBLE_EQ(count("aten::scaled_dot_product_attention", {query, key, key}, {query}),
                   2 * 4 * (2 * 2.0 * 16 * 24 * 8) + 2 * 4 * 16 * 8);
}

TEST_F(Flops, RecurrentLayersCountTheProductsOfAllSteps) {
  // Length 7, batch 3, input 4, hidden size 5.
  const auto input = sized({7, 3, 4}), output = sized({7, 3, 5}), state = sized({3, 5});
  const auto of_input = sized({20, 4}), of_hidden = sized({20, 5}), bias = sized({20});
  const double rows = 7 * 3;
  EXPECT_DOUBLE_EQ(count("aten_recompute::lstm_layer",
                         {input, state, state, of_input, of_hidden, bias, bias, c10::IValue()},
                         {output, state, state}),
                   2.0 * rows * 20 * (4 + 5) + rows * 5 + 2 * 15);
  // The states after the last step, which follow the output, are no weights.
  EXPECT_DOUBLE_EQ(count("aten_recompute::lstm_layer_backward",
                         {output, c10::IValue(), c10::IValue(), input, state, state, of_input,
                          of_hidden, bias, bias, c10::IValue(), output, state, state},
                         {input}),
                   2 * 2.0 * rows * 20 * (4 + 5) + rows * 4);
  const auto multiplied = sized({7, 3, 15}), weight = sized({15, 5});
  EXPECT_DOUBLE_EQ(count("aten_recompute::gru_layer", {multiplied, state, weight}, {output, state}),
                   2.0 * rows * 15 * 5 + rows * 5 + 15);
  EXPECT_DOUBLE_EQ(
      count("aten_recompute::gru_layer_backward",
            {output, c10::IValue(), state, weight, c10::IValue(), output}, {multiplied}),
      2 * 2.0 * rows * 15 * 5 + rows * 15);
}

TEST_F(Flops, OtherOperatorsCountOnePerElementOfTheirResults) {
  EXPECT_DOUBLE_EQ(count("aten::relu", {sized({3, 4})}, {sized({3, 4})}), 12);
  EXPECT_DOUBLE_EQ(count("aten::sum", {sized({3, 4})}, {sized({})}), 1);
  const std::vector<at::Tensor> halves{sized({3, 2}), sized({3, 2})};
  EXPECT_DOUBLE_EQ(count("aten::chunk", {sized({3, 4})}, {halves}), 12);
  EXPECT_DOUBLE_EQ(count("aten::relu", {at::Tensor()}, {at::Tensor()}), 0);
  EXPECT_DOUBLE_EQ(count("aten::size", {sized({3, 4})}, {3}), 0);
}

// The model assumes 100 GFLOP/s, 10 GB/s and 2 us per call.
TEST_F(Flops, SecondsFollowFromFlopsAndBytes) {
  EXPECT_DOUBLE_EQ(model_seconds(0, 0), 2e-6);
  EXPECT_DOUBLE_EQ(model_seconds(100e9, 0), 1.000002);
  EXPECT_DOUBLE_EQ(model_seconds(50e9, 20e9), 2.500002);
}

}  // namespace
}  // namespace aten_recompute
