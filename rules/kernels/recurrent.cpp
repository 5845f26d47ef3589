// One layer of a recurrent network in one direction, over all time steps. A graph with a node per
// step and operator would grow with the length, and each length would be a path of its own.
//
// On the CPU, ATen runs an LSTM of float32 by oneDNN, layer by layer, and composes other cells of
// elementwise operators and matrix products (RNN.cpp). Both ways are taken here as eager PyTorch
// takes them. The composed way calls the same operators on tensors of the same sizes and strides,
// forwards and backwards, and adds the gradients of a weight from the last step to the first, as
// autograd's engine does. What it keeps is written into one tensor per kind instead of one per
// step and operator.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "rules/kernels/boxing.h"
#include "rules/kernels/matrix.h"
#include "rules/kernels/operators.h"

namespace aten_recompute {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Which gradients are needed, in the order of the operator's tensor arguments.
using Mask = std::vector<bool>;

// The time steps in the order in which a layer goes through them.
class Steps {
 public:
  Steps(const Tensor& sequence, bool reverse) : count_(sequence.size(0)), reverse_(reverse) {
    TORCH_CHECK(count_ > 0, "Expected sequence length to be larger than 0 in RNN");
  }

  int64_t count() const { return count_; }
  int64_t time(int64_t step) const { return reverse_ ? count_ - 1 - step : step; }

 private:
  int64_t count_;
  bool reverse_;
};

// Returns a part of a tensor, or a copy, in memory that is aligned like that of a tensor of its
// own, which the part is in eager PyTorch. The rounding of a matrix product may depend on the
// alignment of its operands.
Tensor aligned_part(const Tensor& part) {
  constexpr uintptr_t kAlignment = 64;  // of c10's allocator
  const auto address = reinterpret_cast<uintptr_t>(part.const_data_ptr());
  return address % kAlignment == 0 ? part : part.clone();
}

// Returns the part of `gates`, [batch, n * size], of one gate.
Tensor gate(const Tensor& gates, int64_t index, int64_t size) {
  return gates.narrow(1, index * size, size);
}

Tensor none(const Tensor& like) {
  return at::empty({0}, like.options());
}

void add_to(Tensor& sum, const Tensor& summand) {
  if (sum.defined())
    sum.add_(summand);
  else
    sum = summand;
}

// A linear function of the hidden state, and the sums of its gradients over the steps.
class HiddenLinear {
 public:
  explicit HiddenLinear(Tensor weight, OptionalTensor bias = std::nullopt,
                        bool needs_weight = false, bool needs_bias = false)
      : weight_(std::move(weight)),
        bias_(std::move(bias)),
        needs_weight_(needs_weight),
        needs_bias_(needs_bias) {}

  Tensor operator()(const Tensor& hidden) const { return at::linear(hidden, weight_, bias_); }

  // Adds the gradients of weight and bias for one step.
  void add_gradients(const Tensor& grad, const Tensor& hidden) {
    if (needs_bias_)
      add_to(grad_bias_, at::sum_to(grad, bias_->sizes()));
    if (!needs_weight_)
      return;
    const auto transposed = weight_.t();
    add_to(grad_weight_,
           mm_grad_mat2(grad, hidden, transposed.sizes().vec(), transposed.strides().vec(), 1).t());
  }

  // Returns the gradient of `hidden`, of which only the layout matters.
  Tensor gradient_of(const Tensor& hidden, const Tensor& grad) const {
    return mm_grad_self(grad, weight_.t(), hidden.sizes().vec(), hidden.strides().vec(), 1);
  }

  Tensor grad_weight() const { return grad_weight_.defined() ? grad_weight_ : none(weight_); }
  Tensor grad_bias() const { return grad_bias_.defined() ? grad_bias_ : none(weight_); }

 private:
  Tensor weight_;
  OptionalTensor bias_;
  bool needs_weight_;
  bool needs_bias_;
  Tensor grad_weight_;
  Tensor grad_bias_;
};

// Returns the gradient of the hidden state after the last step.
Tensor last_gradient(const Tensor& grad_output, const OptionalTensor& grad_hidden) {
  return grad_hidden ? grad_output + *grad_hidden : grad_output;
}

// ---- RNN: h' = f(x + W h) ----

// `input` is that of the steps, multiplied by its weights.
std::tuple<Tensor, Tensor> rnn_layer(Tensor input, Tensor h0, Tensor weight, OptionalTensor bias,
                                     bool relu, bool reverse) {
  const Steps steps(input, reverse);
  const HiddenLinear linear_hidden(weight, bias);
  auto output = at::empty({input.size(0), input.size(1), h0.size(1)}, input.options());
  auto hidden = h0;
  for (int64_t step = 0; step < steps.count(); ++step) {
    const auto time = steps.time(step);
    const auto sum = linear_hidden(hidden).add_(input.select(0, time));
    hidden = relu ? at::relu(sum) : at::tanh(sum);
    output.select(0, time).copy_(hidden);
  }
  return {output, hidden};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> rnn_layer_backward(Tensor grad_output,
                                                              OptionalTensor grad_hidden, Tensor h0,
                                                              Tensor weight, OptionalTensor bias,
                                                              Tensor output, bool relu,
                                                              bool reverse, Mask needs) {
  const Steps steps(output, reverse);
  HiddenLinear linear_hidden(weight, bias, needs[2], needs[3]);
  auto grad_input = needs[0] ? at::empty_like(output) : none(output);
  auto grad = last_gradient(grad_output.select(0, steps.time(steps.count() - 1)), grad_hidden);
  Tensor grad_h0;
  for (int64_t step = steps.count(); step-- > 0;) {
    const auto time = steps.time(step);
    const auto result = output.select(0, time);
    const auto grad_sum =
        relu ? at::threshold_backward(grad, result, 0) : at::tanh_backward(grad, result);
    if (needs[0])
      grad_input.select(0, time).copy_(grad_sum);
    const auto before = step == 0 ? h0 : aligned_part(output.select(0, steps.time(step - 1)));
    linear_hidden.add_gradients(grad_sum, before);
    if (step > 0)
      grad =
          grad_output.select(0, steps.time(step - 1)) + linear_hidden.gradient_of(before, grad_sum);
    else if (needs[1])
      grad_h0 = linear_hidden.gradient_of(before, grad_sum);
  }
  return {grad_input, grad_h0.defined() ? grad_h0 : none(output), linear_hidden.grad_weight(),
          linear_hidden.grad_bias()};
}

// ---- GRU ----

// Also returns what the backward needs of each step: the reset and the update gate and the hidden
// part of the new gate, [time, batch, 3 * size], and the new gate itself, [time, batch, size],
// which ATen has in a tensor of its own.
std::tuple<Tensor, Tensor, Tensor, Tensor> gru_layer(Tensor input, Tensor h0, Tensor weight,
                                                     OptionalTensor bias, bool reverse) {
  const Steps steps(input, reverse);
  const HiddenLinear linear_hidden(weight, bias);
  const auto size = h0.size(1);
  auto output = at::empty({input.size(0), input.size(1), size}, input.options());
  auto gates = at::empty({input.size(0), input.size(1), 3 * size}, input.options());
  auto new_gates = at::empty_like(output);
  auto hidden = h0;
  for (int64_t step = 0; step < steps.count(); ++step) {
    const auto time = steps.time(step);
    const auto of_input = input.select(0, time);
    const auto of_hidden = linear_hidden(hidden);
    const auto kept = gates.select(0, time);
    for (const int64_t index : {0, 1}) {  // reset, update
      auto each = gate(kept, index, size);
      at::add_out(each, gate(of_hidden, index, size), gate(of_input, index, size));
      each.sigmoid_();
    }
    const auto hidden_part = gate(of_hidden, 2, size);
    gate(kept, 2, size).copy_(hidden_part);
    auto new_gate = new_gates.select(0, time);
    at::add_out(new_gate, gate(of_input, 2, size), hidden_part.mul_(gate(kept, 0, size)));
    new_gate.tanh_();
    hidden = (hidden - new_gate).mul_(gate(kept, 1, size)).add_(new_gate);
    output.select(0, time).copy_(hidden);
  }
  return {output, hidden, gates, new_gates};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> gru_layer_backward(
    Tensor grad_output, OptionalTensor grad_hidden, Tensor h0, Tensor weight, OptionalTensor bias,
    Tensor output, Tensor gates, Tensor new_gates, bool reverse, Mask needs) {
  const Steps steps(output, reverse);
  HiddenLinear linear_hidden(weight, bias, needs[2], needs[3]);
  const auto size = h0.size(1);
  auto grad_input = needs[0] ? at::empty_like(gates) : none(output);
  auto grad = last_gradient(grad_output.select(0, steps.time(steps.count() - 1)), grad_hidden);
  Tensor grad_h0;
  for (int64_t step = steps.count(); step-- > 0;) {
    const auto time = steps.time(step);
    const auto kept = gates.select(0, time);
    const auto reset = gate(kept, 0, size);
    const auto update = gate(kept, 1, size);
    const auto new_gate = new_gates.select(0, time);
    const auto before = step == 0 ? h0 : aligned_part(output.select(0, steps.time(step - 1)));
    const auto grad_difference = grad * update;  // of (hidden - new) * update + new
    const auto grad_update = at::sigmoid_backward(grad * (before - new_gate), update);
    const auto grad_new = at::tanh_backward(grad - grad_difference, new_gate);
    const auto grad_reset = at::sigmoid_backward(grad_new * gate(kept, 2, size), reset);
    if (needs[0]) {
      auto of_step = grad_input.select(0, time);
      at::cat_out(of_step, {grad_reset, grad_update, grad_new}, 1);
    }
    const auto grad_linear = at::cat({grad_reset, grad_update, grad_new * reset}, 1);
    linear_hidden.add_gradients(grad_linear, before);
    if (step == 0 && !needs[1])
      continue;
    // The engine adds the gradient of the output first, then that of the newer operator.
    const auto of_linear = linear_hidden.gradient_of(before, grad_linear);
    if (step > 0)
      grad = (grad_output.select(0, steps.time(step - 1)) + grad_difference).add_(of_linear);
    else
      grad_h0 = grad_difference + of_linear;
  }
  return {grad_input, grad_h0.defined() ? grad_h0 : none(output), linear_hidden.grad_weight(),
          linear_hidden.grad_bias()};
}

// ---- LSTM ----

struct LstmArguments {
  Tensor input, h0, c0, weight_input, weight_hidden;
  OptionalTensor bias_input, bias_hidden, weight_projection;
  bool reverse;
};

// The outputs of a layer, and what its backward needs besides: by oneDNN its workspace, otherwise
// the gates, [time, batch, 4 * size], and the cells, [time, batch, size].
struct LstmResults {
  Tensor output, hidden, cell, gates, cells;
};

using LstmGradients = std::array<Tensor, 8>;  // in the order of LstmArguments

bool onednn_supports(at::ScalarType dtype) {
  if (dtype != at::kBFloat16)
    return dtype == at::kFloat;
  static const auto supported = c10::Dispatcher::singleton()
                                    .findSchemaOrThrow("mkldnn::_is_mkldnn_bf16_supported", "")
                                    .typed<bool()>();
  return supported.call();
}

// Returns what use_mkldnn in RNN.cpp returns with gradients enabled.
bool uses_onednn(const LstmArguments& layer) {
  return at::hasMKLDNN() && at::globalContext().userEnabledMkldnn() && layer.input.numel() != 0 &&
         !layer.weight_projection && onednn_supports(layer.input.scalar_type());
}

// ideep::rnn_kind::LSTM
constexpr int64_t kOnednnLstm = 2;

// The kernel keeps its workspace only if gradients are enabled. It is called below autograd, so
// nothing is recorded.
LstmResults run_onednn(const LstmArguments& layer) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const at::AutoGradMode grad_mode(true);
  const bool has_biases = layer.bias_input.has_value();
  auto [output, hidden, cell, workspace] = at::mkldnn_rnn_layer(
      layer.input.contiguous(), layer.weight_input, layer.weight_hidden,
      has_biases ? *layer.bias_input : layer.weight_input,
      has_biases ? *layer.bias_hidden : layer.weight_hidden, layer.h0.contiguous(),
      layer.c0.contiguous(), layer.reverse, /*batch_sizes=*/{}, kOnednnLstm, layer.h0.size(1),
      /*num_layers=*/1, has_biases, /*bidirectional=*/false, /*batch_first=*/false,
      /*train=*/true);
  return {output, hidden, cell, workspace, none(output)};
}

LstmGradients onednn_gradients(const LstmArguments& layer, const LstmResults& results,
                               const Tensor& grad_output, const OptionalTensor& grad_hidden,
                               const OptionalTensor& grad_cell) {
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  const bool has_biases = layer.bias_input.has_value();
  auto [input, weight_input, weight_hidden, bias_input, bias_hidden, h0, c0] =
      at::mkldnn_rnn_layer_backward(
          layer.input.contiguous(), layer.weight_input, layer.weight_hidden,
          has_biases ? *layer.bias_input : layer.weight_input,
          has_biases ? *layer.bias_hidden : layer.weight_hidden, layer.h0.contiguous(),
          layer.c0.contiguous(), results.output, results.hidden, results.cell, grad_output,
          grad_hidden, grad_cell, layer.reverse, kOnednnLstm, layer.h0.size(1), /*num_layers=*/1,
          has_biases, /*train=*/true, /*bidirectional=*/false, /*batch_sizes=*/{},
          /*batch_first=*/false, results.gates);
  return {input, h0, c0, weight_input, weight_hidden, bias_input, bias_hidden, Tensor()};
}

// The gates replace the products of the input with its weights in their memory.
LstmResults run_cells(const LstmArguments& layer, bool needs_input, bool needs_weight_input) {
  const Steps steps(layer.input, layer.reverse);
  const HiddenLinear linear_hidden(layer.weight_hidden, layer.bias_hidden);
  const auto size = layer.c0.size(1);
  const auto gates =
      linear(layer.input, layer.weight_input, layer.bias_input, needs_input, needs_weight_input)
          .contiguous();
  const auto options = layer.input.options();
  auto output = at::empty({gates.size(0), gates.size(1), layer.h0.size(1)}, options);
  auto cells = at::empty({gates.size(0), gates.size(1), size}, options);
  auto hidden = layer.h0;
  auto cell = layer.c0;
  for (int64_t step = 0; step < steps.count(); ++step) {
    const auto time = steps.time(step);
    auto kept = gates.select(0, time);
    at::add_out(kept, linear_hidden(hidden), kept);
    const auto in = gate(kept, 0, size).sigmoid_();
    const auto forget = gate(kept, 1, size).sigmoid_();
    const auto candidate = gate(kept, 2, size).tanh_();
    const auto out = gate(kept, 3, size).sigmoid_();
    cell = (forget * cell).add_(in * candidate);
    cells.select(0, time).copy_(cell);
    hidden = out * cell.tanh();
    if (layer.weight_projection)
      hidden = at::matmul(hidden, layer.weight_projection->t());
    output.select(0, time).copy_(hidden);
  }
  return {output, hidden, cell, gates, cells};
}

// Computes the gradients of the gates before their activation, step by step backwards.
class LstmCellsBackward {
 public:
  LstmCellsBackward(const LstmArguments& layer, const LstmResults& results, const Mask& needs)
      : layer_(layer),
        results_(results),
        needs_(needs),
        steps_(results.output, layer.reverse),
        size_(layer.c0.size(1)),
        linear_hidden_(layer.weight_hidden, layer.bias_hidden, needs[4], needs[6]),
        grad_gates_(at::empty_like(results.gates)) {
    if (layer.weight_projection)
      projection_.emplace(*layer.weight_projection, std::nullopt, needs[7]);
  }

  LstmGradients run(const Tensor& grad_output, const OptionalTensor& grad_hidden,
                    const OptionalTensor& grad_cell) {
    auto grad = last_gradient(grad_output.select(0, steps_.time(steps_.count() - 1)), grad_hidden);
    if (grad_cell)
      grad_cell_ = *grad_cell;
    LstmGradients gradients;
    for (int64_t step = steps_.count(); step-- > 0;) {
      const auto before =
          step == 0 ? layer_.h0 : aligned_part(results_.output.select(0, steps_.time(step - 1)));
      const auto grad_linear = run_cell(step, grad);
      linear_hidden_.add_gradients(grad_linear, before);
      if (step > 0)
        grad = grad_output.select(0, steps_.time(step - 1)) +
               linear_hidden_.gradient_of(before, grad_linear);
      else if (needs_[1])
        gradients[1] = linear_hidden_.gradient_of(before, grad_linear);
    }
    gradients[2] = grad_cell_;
    gradients[4] = linear_hidden_.grad_weight();
    gradients[6] = linear_hidden_.grad_bias();
    if (projection_)
      gradients[7] = projection_->grad_weight();
    add_input_gradients(gradients);
    return gradients;
  }

 private:
  // Returns the gradient of the gates of one step, given that of its hidden state. Replaces the
  // gradient of the cell after the step by that of the cell before it.
  Tensor run_cell(int64_t step, Tensor grad) {
    const auto time = steps_.time(step);
    const auto kept = results_.gates.select(0, time);
    const auto in = gate(kept, 0, size_);
    const auto forget = gate(kept, 1, size_);
    const auto candidate = gate(kept, 2, size_);
    const auto out = gate(kept, 3, size_);
    const auto cell_before =
        step == 0 ? layer_.c0 : results_.cells.select(0, steps_.time(step - 1));
    const auto activated = results_.cells.select(0, time).tanh();
    if (projection_) {
      const auto unprojected = out * activated;
      projection_->add_gradients(grad, unprojected);
      grad = projection_->gradient_of(unprojected, grad);
    }
    auto grad_cell = at::tanh_backward(grad * out, activated);
    if (grad_cell_.defined())
      grad_cell = grad_cell + grad_cell_;
    auto grad_gates = at::cat(
        {at::sigmoid_backward(grad_cell * candidate, in),
         at::sigmoid_backward(grad_cell * cell_before, forget),
         at::tanh_backward(grad_cell * in, candidate), at::sigmoid_backward(grad * activated, out)},
        1);
    grad_cell_ = grad_cell * forget;
    grad_gates_.select(0, time).copy_(grad_gates);
    return grad_gates;
  }

  void add_input_gradients(LstmGradients& gradients) const {
    const auto& input = layer_.input;
    const auto& weight = layer_.weight_input;
    const bool flattens = linear_flattens(input, layer_.bias_input);
    if (needs_[5])
      gradients[5] = linear_grad_bias(grad_gates_, layer_.bias_input->sizes().vec(), flattens);
    if (needs_[3])
      gradients[3] = linear_grad_weight(grad_gates_, input, weight.sizes().vec(),
                                        weight.strides().vec(), flattens, needs_[0]);
    if (needs_[0])
      gradients[0] = linear_grad_input(grad_gates_, weight, input.sizes().vec(),
                                       input.strides().vec(), flattens, needs_[3]);
  }

  const LstmArguments& layer_;
  const LstmResults& results_;
  const Mask& needs_;
  Steps steps_;
  int64_t size_;
  HiddenLinear linear_hidden_;
  std::optional<HiddenLinear> projection_;
  Tensor grad_gates_;
  Tensor grad_cell_;
};

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> lstm_layer(
    Tensor input, Tensor h0, Tensor c0, Tensor weight_input, Tensor weight_hidden,
    OptionalTensor bias_input, OptionalTensor bias_hidden, OptionalTensor weight_projection,
    bool reverse, bool needs_input, bool needs_weight_input) {
  const LstmArguments layer{input,         h0,         c0,          weight_input,
                            weight_hidden, bias_input, bias_hidden, weight_projection,
                            reverse};
  const auto results =
      uses_onednn(layer) ? run_onednn(layer) : run_cells(layer, needs_input, needs_weight_input);
  return {results.output, results.hidden, results.cell, results.gates, results.cells};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor> lstm_layer_backward(
    Tensor grad_output, OptionalTensor grad_hidden, OptionalTensor grad_cell, Tensor input,
    Tensor h0, Tensor c0, Tensor weight_input, Tensor weight_hidden, OptionalTensor bias_input,
    OptionalTensor bias_hidden, OptionalTensor weight_projection, Tensor output, Tensor hidden,
    Tensor cell, Tensor gates, Tensor cells, bool reverse, Mask needs) {
  const LstmArguments layer{input,         h0,         c0,          weight_input,
                            weight_hidden, bias_input, bias_hidden, weight_projection,
                            reverse};
  const LstmResults results{output, hidden, cell, gates, cells};
  // The forward may have been run before the flag of oneDNN was changed, so its result tells.
  const bool by_onednn = gates.scalar_type() == at::kByte;
  auto gradients =
      by_onednn ? onednn_gradients(layer, results, grad_output, grad_hidden, grad_cell)
                : LstmCellsBackward(layer, results, needs).run(grad_output, grad_hidden, grad_cell);
  for (size_t i = 0; i < gradients.size(); ++i) {
    auto& each = gradients[i];
    // oneDNN's gradients are float32 whatever the type of the layer.
    each = needs[i] ? each.to(input.scalar_type()) : none(input);
  }
  auto& [a, b, c, d, e, f, g, h] = gradients;
  return {a, b, c, d, e, f, g, h};
}

}  // namespace

void register_recurrent_operators() {
  static const torch::jit::RegisterOperators registered({
      pure_operator("aten_recompute::rnn_layer(Tensor input, Tensor h0, Tensor weight, "
                    "Tensor? bias, bool relu, bool reverse) -> (Tensor, Tensor)",
                    &rnn_layer),
      pure_operator("aten_recompute::rnn_layer_backward(Tensor grad_output, Tensor? grad_hidden, "
                    "Tensor h0, Tensor weight, Tensor? bias, Tensor output, bool relu, "
                    "bool reverse, bool[] needs) -> (Tensor, Tensor, Tensor, Tensor)",
                    &rnn_layer_backward),
      pure_operator("aten_recompute::gru_layer(Tensor input, Tensor h0, Tensor weight, "
                    "Tensor? bias, bool reverse) -> (Tensor, Tensor, Tensor, Tensor)",
                    &gru_layer),
      pure_operator("aten_recompute::gru_layer_backward(Tensor grad_output, Tensor? grad_hidden, "
                    "Tensor h0, Tensor weight, Tensor? bias, Tensor output, Tensor gates, "
                    "Tensor new_gates, bool reverse, bool[] needs) "
                    "-> (Tensor, Tensor, Tensor, Tensor)",
                    &gru_layer_backward),
      pure_operator("aten_recompute::lstm_layer(Tensor input, Tensor h0, Tensor c0, "
                    "Tensor weight_input, Tensor weight_hidden, Tensor? bias_input, "
                    "Tensor? bias_hidden, Tensor? weight_projection, bool reverse, "
                    "bool needs_grad_input, bool needs_grad_weight) "
                    "-> (Tensor, Tensor, Tensor, Tensor, Tensor)",
                    &lstm_layer),
      pure_operator("aten_recompute::lstm_layer_backward(Tensor grad_output, Tensor? grad_hidden, "
                    "Tensor? grad_cell, Tensor input, Tensor h0, Tensor c0, Tensor weight_input, "
                    "Tensor weight_hidden, Tensor? bias_input, Tensor? bias_hidden, "
                    "Tensor? weight_projection, Tensor output, Tensor hidden, Tensor cell, "
                    "Tensor gates, Tensor cells, bool reverse, bool[] needs) "
                    "-> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
                    &lstm_layer_backward),
  });
}

}  // namespace aten_recompute
