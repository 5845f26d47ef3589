// Scaled dot product attention with the kernel that eager PyTorch chooses, and with the values that
// its backward needs.
#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <ATen/ExpandUtils.h>
#include <ATen/SDPBackend.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <cmath>
#include <limits>
#include <mutex>
#include <optional>
#include <tuple>
#include <utility>

#include "rules/kernels/boxing.h"
#include "rules/kernels/operators.h"
#include "rules/kernels/random_mask.h"

namespace aten_recompute {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

struct Call {
  Tensor query, key, value;
  OptionalTensor mask;
  double dropout;
  bool causal;
  std::optional<double> scale;
  bool grouped;
  bool needs_mask;
};

// Returns a tensor for the choice of the kernel, which depends on everything but the elements, and
// on whether a gradient is required.
Tensor stand_in(const Tensor& tensor, bool requires_grad) {
  return tensor.detach().set_requires_grad(requires_grad);
}

at::SDPBackend choose(const Call& call) {
  OptionalTensor mask = call.mask;
  if (mask.has_value())
    mask = stand_in(*mask, call.needs_mask && at::isFloatingType(mask->scalar_type()));
  const at::AutoGradMode grad_mode(true);
  return static_cast<at::SDPBackend>(at::_fused_sdp_choice(
      stand_in(call.query, true), stand_in(call.key, true), stand_in(call.value, true), mask,
      call.dropout, call.causal, call.scale, call.grouped));
}

// Turns a bool mask, where True means that a pair takes part, into an additive one: 0 there, minus
// infinity elsewhere.
OptionalTensor additive(const OptionalTensor& mask, at::ScalarType dtype) {
  if (!mask.has_value() || mask->scalar_type() != at::kBool)
    return mask;
  return at::zeros_like(*mask, mask->options().dtype(dtype))
      .masked_fill_(mask->logical_not(), -std::numeric_limits<double>::infinity());
}

Tensor no_elements(const Tensor& like) {
  return at::empty({0}, like.options());
}

// ---- matrix products and softmax, for calls that no fused kernel supports ----

bool computes_in_float32(at::ScalarType dtype) {
  return (dtype == at::kHalf || dtype == at::kBFloat16) &&
         !at::globalContext().allowFP16BF16ReductionMathSDP();
}

struct AttentionOperands {
  Tensor query, key_transposed, value;  // query and key are scaled, heads of key and value repeated
  double query_factor, key_factor;
  OptionalTensor mask;
};

AttentionOperands operands_of(const Call& call) {
  AttentionOperands operands;
  auto query = call.query;
  auto key = call.key;
  auto value = call.value;
  if (computes_in_float32(query.scalar_type())) {
    query = query.to(at::kFloat);
    key = key.to(at::kFloat);
    value = value.to(at::kFloat);
  }
  const bool negative = call.scale.has_value() && *call.scale < 0;
  const auto scale = call.scale.has_value() ? std::abs(*call.scale)
                                            : 1.0 / std::sqrt(static_cast<double>(query.size(-1)));
  operands.key_factor = std::sqrt(scale);
  operands.query_factor = negative ? 0.0 - operands.key_factor : operands.key_factor;
  operands.query = query * operands.query_factor;
  if (call.grouped) {
    key = key.repeat_interleave(query.size(-3) / key.size(-3), -3);
    value = value.repeat_interleave(query.size(-3) / value.size(-3), -3);
  }
  operands.key_transposed = key.transpose(-2, -1) * operands.key_factor;
  operands.value = value;
  operands.mask = additive(call.mask, call.query.scalar_type());
  if (call.causal) {
    operands.mask =
        additive(at::ones({query.size(-2), key.size(-2)}, query.options().dtype(at::kBool)).tril(),
                 query.scalar_type());
  }
  return operands;
}

std::vector<int64_t> weights_size(const Call& call) {
  const auto rank = [](const Tensor& t) { return static_cast<size_t>(t.dim() - 2); };
  auto key_batch = call.key.sizes().slice(0, rank(call.key)).vec();
  if (call.grouped)
    key_batch.back() = call.query.size(-3);
  auto size = at::infer_size(call.query.sizes().slice(0, rank(call.query)), key_batch);
  size.push_back(call.query.size(-2));
  size.push_back(call.key.size(-2));
  return size;
}

Tensor dropout_noise(const Tensor& kept, const Tensor& like, double p) {
  return kept.to(like.scalar_type()).div_(1 - p);
}

Tensor with_dropout(const Tensor& weights, const Tensor& kept, double p) {
  if (p == 0)
    return weights;
  if (p == 1)
    return weights.mul(at::zeros({}, weights.options()));
  if (weights.is_cuda())
    return at::native_dropout_backward(weights, kept, 1.0 / (1.0 - p));
  return weights * dropout_noise(kept, weights, p);
}

// On meta tensors ATen's operator needs kernels that only Python brings. This one allocates as
// much.
Tensor safe_softmax(const Tensor& weights) {
  if (!weights.is_meta())
    return at::_safe_softmax(weights, -1);
  const auto probabilities = at::softmax(weights, -1);
  const auto is_masked = at::empty_like(weights, weights.options().dtype(at::kBool));
  return at::empty_like(probabilities);
}

// Returns the output and the weights before dropout.
std::tuple<Tensor, Tensor> composed(const Call& call, const Tensor& kept) {
  const auto operands = operands_of(call);
  auto weights = at::matmul(operands.query, operands.key_transposed);
  if (operands.mask.has_value())
    weights.add_(*operands.mask);
  weights = safe_softmax(weights);
  const auto output = at::matmul(with_dropout(weights, kept, call.dropout), operands.value);
  return {output.to(call.query.scalar_type()), weights};
}

// Returns the gradients of matmul(left, right), computed like eager's matmul with one batch
// dimension.
std::tuple<Tensor, Tensor> matmul_backward(const Tensor& gradient, const Tensor& left,
                                           const Tensor& right) {
  if (gradient.dim() == 2)
    return {gradient.mm(right.t()), left.t().mm(gradient)};
  const auto batch = gradient.sizes().slice(0, static_cast<size_t>(gradient.dim() - 2)).vec();
  const auto count = c10::multiply_integers(batch);
  auto expanded_size = [&](const Tensor& t) {
    auto size = batch;
    size.insert(size.end(), {t.size(-2), t.size(-1)});
    return size;
  };
  auto flat = [&](const Tensor& t) {
    return t.expand(expanded_size(t)).reshape({count, t.size(-2), t.size(-1)});
  };
  auto unflat = [&](const Tensor& t, const Tensor& like) {
    return at::sum_to(t.view(expanded_size(like)), like.sizes());
  };
  const auto flat_gradient = flat(gradient);
  return {unflat(flat_gradient.bmm(flat(right).transpose(1, 2)), left),
          unflat(flat(left).transpose(1, 2).bmm(flat_gradient), right)};
}

// Sums over the repetitions of heads.
Tensor grouped_gradient(const Tensor& gradient, const Tensor& target) {
  if (gradient.dim() < 3 || gradient.size(-3) == target.size(-3))
    return gradient;
  auto size = gradient.sizes().vec();
  const auto axis = size.end() - 3;
  const auto repeats = *axis / target.size(-3);
  *axis = target.size(-3);
  size.insert(size.end() - 2, repeats);
  return gradient.reshape(size).sum(-3);
}

// Exchanges gradients of one tensor that is read twice or three times, so that whoever adds them in
// the order of the operands adds them as eager PyTorch does: there the value's arrives first, then
// the key's. The first one decides the layout of the sum, too.
void order_for_sums(const Call& call, Tensor& for_query, Tensor& for_key, Tensor& for_value) {
  if (call.query.is_same(call.value))
    std::swap(for_query, for_value);
  else if (call.key.is_same(call.value))
    std::swap(for_key, for_value);
  else if (call.query.is_same(call.key))
    std::swap(for_query, for_key);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> composed_backward(const Call& call,
                                                             const Tensor& gradient,
                                                             const Tensor& weights,
                                                             const Tensor& kept) {
  const auto operands = operands_of(call);
  auto [for_weights, for_value] =
      matmul_backward(gradient.to(weights.scalar_type()), with_dropout(weights, kept, call.dropout),
                      operands.value);
  for_weights = with_dropout(for_weights, kept, call.dropout);
  const auto for_scores =
      at::_softmax_backward_data(for_weights, weights, -1, weights.scalar_type());
  auto [for_query, for_key] = matmul_backward(for_scores, operands.query, operands.key_transposed);
  for_key = (for_key * operands.key_factor).transpose(-2, -1);
  auto for_mask = for_scores;
  if (call.needs_mask)
    for_mask = at::sum_to(for_scores, call.mask->sizes()).to(call.mask->scalar_type());
  for_query = (for_query * operands.query_factor).to(call.query.scalar_type());
  for_key = grouped_gradient(for_key, call.key).to(call.key.scalar_type());
  for_value = grouped_gradient(for_value, call.value).to(call.value.scalar_type());
  order_for_sums(call, for_query, for_key, for_value);
  return {for_query, for_key, for_value, for_mask};
}

// ---- fused kernels of GPUs ----

// The flash kernel needs a last dimension that is a multiple of 8.
Tensor padded(const Tensor& tensor) {
  const auto missing = (8 - tensor.size(-1) % 8) % 8;
  return missing == 0 ? tensor : at::constant_pad_nd(tensor, {0, missing});
}

double flash_scale(const Call& call) {
  return call.scale.value_or(1.0 / std::sqrt(static_cast<double>(call.query.size(-1))));
}

// The memory-efficient kernel needs a mask of full size whose rows are aligned to 16 elements.
Tensor aligned(const Tensor& mask, const Call& call) {
  const auto length = mask.size(-1);
  auto result = mask;
  if (length % 16 != 0)
    result = at::constant_pad_nd(mask, {0, 16 - length % 16}).slice(-1, 0, length);
  return result.expand(
      {call.query.size(0), call.query.size(1), call.query.size(2), call.key.size(2)});
}

OptionalTensor kernel_mask(const Call& call) {
  auto mask = additive(call.mask, call.query.scalar_type());
  if (mask.has_value())
    mask = aligned(*mask, call);
  return mask;
}

// Fused dropout draws its numbers inside the kernel. A recomputation has to draw the same numbers,
// and to leave the generator as it was.
class ReplayedGenerator {
 public:
  ReplayedGenerator(const Tensor& state, const at::Device& device) {
    if (state.numel() == 0)
      return;
    generator_ = at::globalContext().defaultGenerator(device);
    const std::lock_guard<std::mutex> lock(generator_->mutex());
    const auto current = generator_->get_state();
    if (at::equal(current, state))
      return;  // this is the first run
    previous_state_ = current;
    generator_->set_state(state);
  }
  ~ReplayedGenerator() {
    if (!previous_state_.defined())
      return;
    const std::lock_guard<std::mutex> lock(generator_->mutex());
    generator_->set_state(previous_state_);
  }
  ReplayedGenerator(const ReplayedGenerator&) = delete;
  ReplayedGenerator& operator=(const ReplayedGenerator&) = delete;

 private:
  std::optional<at::Generator> generator_;
  Tensor previous_state_;
};

// ---- the operators ----

// Returns the random decisions of dropout: which weights are kept or, if a fused kernel draws them,
// the state of its generator.
Tensor attention_dropout(const Tensor& query, const Tensor& key, const Tensor& value,
                         const OptionalTensor& mask, double dropout, bool causal,
                         std::optional<double> scale, bool grouped, bool needs_mask) {
  const Call call{query, key, value, mask, dropout, causal, scale, grouped, needs_mask};
  if (dropout == 0)
    return no_elements(query);
  if (choose(call) != at::SDPBackend::math) {
    auto generator = at::globalContext().defaultGenerator(query.device());
    const std::lock_guard<std::mutex> lock(generator.mutex());
    return generator.get_state();
  }
  const auto dtype = computes_in_float32(query.scalar_type()) ? at::kFloat : query.scalar_type();
  if (dropout == 1)
    return no_elements(query);
  const auto sizes = weights_size(call);
  if (query.is_cuda()) {
    const auto weights = at::empty(sizes, query.options().dtype(dtype));
    return std::get<1>(at::native_dropout(weights, dropout, /*train=*/true));
  }
  return draw_random_mask(at::empty(sizes, query.options().dtype(at::kBool)), dtype, 1 - dropout);
}

int64_t to_int(const c10::SymInt& number) {
  return number.guard_int(__FILE__, __LINE__);
}

using Forward = std::tuple<Tensor, Tensor, Tensor, Tensor, int64_t, int64_t, int64_t>;

// Returns the output, the softmax's statistics (or weights), seed and offset of fused dropout, the
// longest query and key, and the backend.
Forward attention(const Tensor& query, const Tensor& key, const Tensor& value,
                  const OptionalTensor& mask, double dropout, bool causal,
                  std::optional<double> scale, bool grouped, bool needs_mask, const Tensor& drawn) {
  const Call call{query, key, value, mask, dropout, causal, scale, grouped, needs_mask};
  const auto backend = choose(call);
  const auto number = static_cast<int64_t>(backend);
  const auto none = no_elements(query);
  if (backend == at::SDPBackend::math) {
    auto [output, weights] = composed(call, drawn);
    return {output, weights, none, none, 0, 0, number};
  }
  if (query.is_cpu()) {
    TORCH_CHECK(backend == at::SDPBackend::flash_attention, "unknown attention backend ", number);
    auto [output, statistics] = at::_scaled_dot_product_flash_attention_for_cpu(
        query, key, value, dropout, causal, additive(mask, query.scalar_type()), scale);
    return {output, statistics, none, none, 0, 0, number};
  }
  const ReplayedGenerator generator(dropout > 0 ? drawn : none, query.device());
  if (backend == at::SDPBackend::flash_attention) {
    auto result = at::_scaled_dot_product_flash_attention(
        padded(query), padded(key), padded(value), dropout, causal, /*return_debug_mask=*/false,
        flash_scale(call));
    return {std::get<0>(result).narrow(-1, 0, value.size(-1)),
            std::get<1>(result),
            std::get<6>(result),
            std::get<7>(result),
            to_int(std::get<4>(result)),
            to_int(std::get<5>(result)),
            number};
  }
  if (backend == at::SDPBackend::efficient_attention) {
    auto [output, statistics, seed, offset] = at::_scaled_dot_product_efficient_attention(
        query, key, value, kernel_mask(call), /*compute_log_sumexp=*/true, dropout, causal, scale);
    return {output, statistics, seed, offset, 0, 0, number};
  }
  TORCH_CHECK(backend == at::SDPBackend::cudnn_attention, "unknown attention backend ", number);
  auto result = at::_scaled_dot_product_cudnn_attention(
      query, key, value, kernel_mask(call), /*compute_log_sumexp=*/true, dropout, causal,
      /*return_debug_mask=*/false, scale);
  return {std::get<0>(result),
          std::get<1>(result),
          std::get<6>(result),
          std::get<7>(result),
          to_int(std::get<4>(result)),
          to_int(std::get<5>(result)),
          number};
}

std::tuple<Tensor, Tensor, Tensor, Tensor> attention_backward(
    const Tensor& gradient, const Tensor& query, const Tensor& key, const Tensor& value,
    const OptionalTensor& mask, double dropout, bool causal, std::optional<double> scale,
    bool grouped, bool needs_mask, const Tensor& output, const Tensor& statistics,
    const Tensor& seed, const Tensor& offset, int64_t max_query, int64_t max_key, int64_t number,
    const Tensor& drawn) {
  const Call call{query, key, value, mask, dropout, causal, scale, grouped, needs_mask};
  const auto backend = static_cast<at::SDPBackend>(number);
  if (backend == at::SDPBackend::math)
    return composed_backward(call, gradient, statistics, drawn);
  if (query.is_cpu()) {
    auto [for_query, for_key, for_value] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        gradient, query, key, value, output, statistics, dropout, causal,
        additive(mask, query.scalar_type()), scale);
    return {for_query, for_key, for_value, gradient};
  }
  if (backend == at::SDPBackend::flash_attention) {
    auto [for_query, for_key, for_value] = at::_scaled_dot_product_flash_attention_backward(
        padded(gradient), padded(query), padded(key), padded(value), padded(output), statistics,
        /*cum_seq_q=*/{}, /*cum_seq_k=*/{}, max_query, max_key, dropout, causal, seed, offset,
        flash_scale(call));
    return {for_query.narrow(-1, 0, query.size(-1)), for_key.narrow(-1, 0, key.size(-1)),
            for_value.narrow(-1, 0, value.size(-1)), gradient};
  }
  const auto bias = kernel_mask(call).value_or(Tensor());
  if (backend == at::SDPBackend::efficient_attention) {
    auto [for_query, for_key, for_value, for_mask] =
        at::_scaled_dot_product_efficient_attention_backward(
            gradient, query, key, value, bias, output, statistics, seed, offset, dropout,
            {true, true, true, needs_mask}, causal, scale);
    if (!needs_mask || !for_mask.defined())
      return {for_query, for_key, for_value, gradient};
    return {for_query, for_key, for_value, at::sum_to(for_mask, mask->sizes())};
  }
  auto [for_query, for_key, for_value] = at::_scaled_dot_product_cudnn_attention_backward(
      gradient, query, key, value, output, statistics, seed, offset, bias, /*cum_seq_q=*/{},
      /*cum_seq_k=*/{}, max_query, max_key, dropout, causal, scale);
  return {for_query, for_key, for_value, gradient};
}

}  // namespace

void register_attention_operators() {
  const std::string arguments =
      "Tensor query, Tensor key, Tensor value, Tensor? attn_mask, float dropout_p, "
      "bool is_causal, float? scale, bool enable_gqa, bool needs_attn_mask";
  static const torch::jit::RegisterOperators registered({
      pure_operator("aten_recompute::attention_dropout(" + arguments + ") -> Tensor",
                    &attention_dropout),
      pure_operator("aten_recompute::attention(" + arguments +
                        ", Tensor drawn) -> (Tensor, Tensor, Tensor, Tensor, int, int, int)",
                    &attention),
      pure_operator("aten_recompute::attention_backward(Tensor grad, " + arguments +
                        ", Tensor output, Tensor statistics, Tensor seed, Tensor offset, "
                        "int max_query, int max_key, int backend, Tensor drawn) "
                        "-> (Tensor, Tensor, Tensor, Tensor)",
                    &attention_backward),
  });
}

}  // namespace aten_recompute
