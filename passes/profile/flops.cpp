#include "passes/profile/flops.h"

#include <ATen/ops/empty_strided.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "ir/node_names.h"
#include "ir/node_traits.h"
#include "ir/operator_facts.h"
#include "ir/symbols.h"
#include "rules/user_rules.h"
#include "rules/user_shapes.h"
#include "runtime/program.h"

namespace aten_recompute {
namespace {

constexpr double kFlopsPerSecond = 100e9;
constexpr double kBytesPerSecond = 10e9;
constexpr double kSecondsPerCall = 2e-6;

using Values = std::vector<c10::IValue>;

double numel(const c10::IValue& value) {
  if (value.isTensor())
    return value.toTensor().defined() ? static_cast<double>(value.toTensor().numel()) : 0.0;
  double sum = 0.0;
  if (value.isList()) {
    for (const auto& element : value.toListRef())
      sum += numel(element);
  }
  return sum;
}

double numel(const Values& values) {
  double sum = 0.0;
  for (const auto& value : values)
    sum += numel(value);
  return sum;
}

const at::Tensor* tensor_at(const Values& values, size_t i) {
  const bool found = i < values.size() && values[i].isTensor() && values[i].toTensor().defined();
  return found ? &values[i].toTensor() : nullptr;
}

// A product of matrices takes 2 m n k operations; the three tensors are m x n, m x k and k x n,
// times the batch. 2 sqrt(product of the three element counts / batch) gives this number whichever
// of the three is the result, so the formula serves gradients, too.
double product(const Values& operands, const Values& results, size_t first, size_t second) {
  const auto* a = tensor_at(operands, first);
  const auto* b = tensor_at(operands, second);
  const auto* c = tensor_at(results, 0);
  if (a == nullptr || b == nullptr || c == nullptr)
    return numel(results);
  // A batch that is not broadcast is contained in each of the three. Dimensions are aligned at the
  // last.
  double batch = 1.0;
  const auto dims = std::min({a->dim(), b->dim(), c->dim()});
  for (int64_t d = 3; d <= dims; ++d)
    batch *= static_cast<double>(std::min({a->size(-d), b->size(-d), c->size(-d)}));
  const double squared = static_cast<double>(a->numel()) * static_cast<double>(b->numel()) *
                         static_cast<double>(c->numel()) / std::max(1.0, batch);
  return 2.0 * std::sqrt(squared);
}

// Each element of the larger map takes part in one product with one filter of the weight.
double convolution(const at::Tensor& map, const at::Tensor& weight) {
  // conv: (out, in / groups, ...), conv_transpose: (in, out / groups, ...). The map is the output
  // of the former and the input of the latter, so its channels come first in both.
  const auto channels = weight.size(0);
  return 2.0 * static_cast<double>(map.numel()) * static_cast<double>(weight.numel()) /
         std::max(1.0, static_cast<double>(channels));
}

double convolution_forward(const Values& operands, const Values& results, bool transposed) {
  const auto* input = tensor_at(operands, 0);
  const auto* weight = tensor_at(operands, 1);
  const auto* output = tensor_at(results, 0);
  if (input == nullptr || weight == nullptr || output == nullptr)
    return numel(results);
  return convolution(transposed ? *input : *output, *weight);
}

// The operands are grad, input, weight, ... and maybe the flag `transposed`. Each of the two large
// gradients costs as much as the forward, if it was computed.
double convolution_backward(const Values& operands, const Values& results) {
  const auto* grad = tensor_at(operands, 0);
  const auto* input = tensor_at(operands, 1);
  const auto* weight = tensor_at(operands, 2);
  if (grad == nullptr || input == nullptr || weight == nullptr)
    return numel(results);
  const auto flag = std::find_if(operands.begin(), operands.end(),
                                 [](const c10::IValue& value) { return value.isBool(); });
  const bool transposed = flag != operands.end() && flag->toBool();
  double made = 0.0;
  for (size_t i = 0; i < std::min<size_t>(2, results.size()); ++i)
    made += tensor_at(results, i) != nullptr ? 1.0 : 0.0;
  return std::max(1.0, made) * convolution(transposed ? *input : *grad, *weight);
}

// `query` is the index of the operand query, which key and value follow. `products` counts the
// products of length x length x width.
double attention(const Values& operands, size_t query, double products) {
  const auto* q = tensor_at(operands, query);
  const auto* k = tensor_at(operands, query + 1);
  if (q == nullptr || k == nullptr || k->dim() < 2)
    return 0.0;
  return products * 2.0 * static_cast<double>(q->numel()) * static_cast<double>(k->size(-2));
}

// Each row of a sequence, operand 0, is multiplied with each matrix among the weights, which begin
// at operand `first` and end before the next sequence. `products` counts the products with a
// weight.
double recurrent_layer(const Values& operands, const Values& results, size_t first,
                       double products) {
  const auto* sequence = tensor_at(operands, 0);
  if (sequence == nullptr || sequence->dim() != 3)
    return numel(results);
  double weights = 0.0;
  for (size_t i = first; i < operands.size(); ++i) {
    const auto* operand = tensor_at(operands, i);
    if (operand != nullptr && operand->dim() > 2)
      break;
    if (operand != nullptr && operand->dim() == 2)
      weights += static_cast<double>(operand->numel());
  }
  const auto rows = static_cast<double>(sequence->size(0) * sequence->size(1));
  return products * 2.0 * rows * weights + numel(results);
}

// Returns what a rule of the user says, or nothing where there is none.
std::optional<double> counted_by_rule(const torch::jit::Node* node, const Values& operands,
                                      const Values& results) {
  if (node->kind() == symbols::kTapeForward) {
    // The rule belongs to the operator that the tape runs, which reads operands of the tape.
    const auto& subgraph = *node->g(c10::attr::Subgraph);
    const auto* inner = subgraph.block()->nodes().front();
    Values inner_operands;
    for (const auto* input : inner->inputs())
      inner_operands.push_back(operands.at(input->offset()));
    return counted_by_rule(inner, inner_operands, {results.begin(), results.end() - 1});
  }
  const auto* rule = user_rule(node);
  const auto registered = registered_flops(node);
  const bool has_rule = rule != nullptr && rule->flops != nullptr;
  if (registered == nullptr && !has_rule)
    return std::nullopt;
  const auto& function = has_rule && registered == nullptr ? *rule->flops : *registered->formula;
  const auto& code = has_rule && registered == nullptr ? *rule->flops_code : *registered->code;
  torch::jit::Stack stack;
  for (const auto& name : function.parameters) {
    if (const auto argument = node->schema().argumentIndexWithName(name))
      stack.push_back(operands.at(static_cast<size_t>(*argument)));
    else
      stack.push_back(results.at(name == "result" ? 0 : std::stoul(name.substr(6))));
  }
  torch::jit::InterpreterState(code).run(stack);
  const double flops = stack.at(0).toScalar().toDouble();
  TORCH_CHECK(flops >= 0.0, qualified_operator_name(node), ": its rule's flops are ", flops,
              ", which is no number of operations");
  return flops;
}

// Returns the sum over the operators of a stretch, which runs on meta tensors.
double sliced(const torch::jit::Node* node, const Values& operands) {
  Values inputs;
  for (const auto& operand : operands) {
    const auto* tensor = operand.isTensor() ? &operand.toTensor() : nullptr;
    inputs.push_back(tensor == nullptr || !tensor->defined()
                         ? operand
                         : at::empty_strided(tensor->sizes(), tensor->strides(),
                                             tensor->options().device(at::kMeta)));
  }
  const Program program(node->g(c10::attr::Subgraph));
  double flops = 0.0;
  const Program::Observer count = [&](size_t index, const Program::Registers& registers) {
    const auto& instruction = program.instructions()[index];
    Values read, made;
    for (const auto& operand : instruction.operands)
      read.push_back(operand.is_constant ? program.constant(operand.index)
                                         : registers[operand.index]);
    for (const auto output : instruction.outputs)
      made.push_back(output < 0 ? c10::IValue() : registers[output]);
    flops += count_flops(instruction.node, read, made);
  };
  auto registers = program.start(std::move(inputs));
  program.run(registers, 0, program.instructions().size(), nullptr, &count);
  return flops;
}

}  // namespace

double count_flops(const torch::jit::Node* node, const Values& operands, const Values& results) {
  if (const auto flops = counted_by_rule(node, operands, results))
    return *flops;
  if (node->kind() == symbols::kSliced)
    return sliced(node, operands);
  switch (operator_facts(node).flops) {
    case FlopFormula::kProduct:
      return product(operands, results, 0, 1);
    case FlopFormula::kProductPlusBias:
      return product(operands, results, 1, 2);
    case FlopFormula::kConvolution:
      return convolution_forward(operands, results, false);
    case FlopFormula::kTransposedConvolution:
      return convolution_forward(operands, results, true);
    case FlopFormula::kConvolutionBackward:
      return convolution_backward(operands, results);
    case FlopFormula::kAttention:
      return attention(operands, 0, 2.0) + numel(results);
    case FlopFormula::kAttentionBackward:
      return attention(operands, 1, 5.0) + numel(results);
    // The states before the first step come before the weights.
    case FlopFormula::kRecurrentLayer:
      return recurrent_layer(operands, results, 2, 1.0);
    case FlopFormula::kRecurrentLayerBackward:
      return recurrent_layer(operands, results, 3, 2.0);
    case FlopFormula::kLstmLayer:
      return recurrent_layer(operands, results, 3, 1.0);
    case FlopFormula::kLstmLayerBackward:
      return recurrent_layer(operands, results, 6, 2.0);
    case FlopFormula::kPerElement:
      break;
  }
  return numel(results);
}

double model_seconds(double flops, double bytes_moved) {
  return flops / kFlopsPerSecond + bytes_moved / kBytesPerSecond + kSecondsPerCall;
}

}  // namespace aten_recompute
