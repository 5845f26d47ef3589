// Losses that ATen composes of other operators: negative log likelihood for any number of
// dimensions, cross entropy, and gradients of binary cross entropy.
#include <ATen/ATen.h>
#include <ATen/core/Reduction.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <limits>
#include <optional>
#include <tuple>
#include <utility>

#include "rules/kernels/boxing.h"
#include "rules/kernels/operators.h"

namespace aten_recompute {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

bool is_defined(const OptionalTensor& tensor) {
  return tensor && tensor->defined();
}

// nll_loss takes 1 or 2 dimensions, and nll_loss2d takes 4. Other inputs are viewed as [n, c, 1,
// rest].
Tensor input_4d(const Tensor& input) {
  if (input.dim() == 4)
    return input;
  const auto contiguous = input.contiguous();
  return input.numel() > 0 ? contiguous.view({input.size(0), input.size(1), 1, -1})
                           : contiguous.view({input.size(0), input.size(1), 0, 0});
}

Tensor target_3d(const Tensor& target, const Tensor& input) {
  if (input.dim() == 4)
    return target;
  const auto contiguous = target.contiguous();
  return target.numel() > 0 ? contiguous.view({input.size(0), 1, -1})
                            : contiguous.view({input.size(0), 0, 0});
}

std::tuple<Tensor, Tensor> nll_forward(Tensor input, Tensor target, OptionalTensor weight,
                                       int64_t reduction, int64_t ignore_index) {
  if (input.dim() <= 2)
    return at::nll_loss_forward(input, target, weight, reduction, ignore_index);
  TORCH_CHECK_VALUE(input.size(0) == target.size(0), "Expected input batch_size (", input.size(0),
                    ") to match target batch_size (", target.size(0), ").");
  auto result = at::nll_loss2d_forward(input_4d(input), target_3d(target, input), weight, reduction,
                                       ignore_index);
  auto& loss = std::get<0>(result);
  if (input.dim() != 4 && reduction == at::Reduction::None)
    loss = loss.view(target.sizes());
  return result;
}

Tensor nll_backward(Tensor grad, Tensor input, Tensor target, OptionalTensor weight,
                    int64_t reduction, int64_t ignore_index, Tensor total_weight) {
  if (input.dim() <= 2) {
    return at::nll_loss_backward(grad, input, target, weight, reduction, ignore_index,
                                 total_weight);
  }
  const auto rows = target_3d(target, input);
  if (input.dim() != 4 && reduction == at::Reduction::None)
    grad = grad.reshape(rows.sizes());
  return at::nll_loss2d_backward(grad, input_4d(input), rows, weight, reduction, ignore_index,
                                 total_weight)
      .reshape(input.sizes());
}

// ---- cross entropy of log-probabilities (LossNLL.cpp) ----

int64_t class_dim(const Tensor& input) {
  return input.dim() == 1 ? 0 : 1;
}

// Views the weight as [1, classes, 1, ...].
Tensor broadcast_weight(const Tensor& weight, const Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[class_dim(input)] = weight.size(0);
  return weight.view(shape);
}

// Computes the loss for a target of the input's sizes, which contains probabilities.
Tensor probability_loss(const Tensor& input, Tensor target, const OptionalTensor& weight,
                        int64_t reduction, double smoothing) {
  TORCH_CHECK(at::isFloatingType(target.scalar_type()),
              "Expected floating point type for target with class probabilities, got ",
              target.scalar_type());
  const auto classes = input.size(class_dim(input));
  if (smoothing > 0)
    target = target * (1 - smoothing) + smoothing / classes;
  auto product = input * target;
  if (is_defined(weight))
    product = product * broadcast_weight(*weight, input);
  switch (reduction) {
    case at::Reduction::Mean:
      if (input.numel() == 0)
        return (-product.sum()).fill_(std::numeric_limits<double>::quiet_NaN());
      return -product.sum() / (input.numel() / classes);
    case at::Reduction::Sum:
      return -product.sum();
    default:
      return -product.sum(class_dim(input));
  }
}

Tensor smooth_denominator(const Tensor& ignored, const Tensor& target,
                          const OptionalTensor& weight) {
  const auto counted = ~ignored;
  if (!is_defined(weight))
    return counted.sum();
  return weight->gather(0, target.masked_select(counted).flatten()).sum();
}

Tensor smooth_loss(const Tensor& input, const Tensor& target, const OptionalTensor& weight,
                   int64_t reduction, int64_t ignore_index) {
  auto loss = is_defined(weight) ? -(input * broadcast_weight(*weight, input)).sum(class_dim(input))
                                 : -input.sum(class_dim(input));
  const auto ignored = target == ignore_index;
  loss = loss.masked_fill(ignored, 0.0);
  if (reduction == at::Reduction::None)
    return loss;
  if (reduction == at::Reduction::Sum)
    return loss.sum();
  return loss.sum() / smooth_denominator(ignored, target, weight);
}

std::tuple<Tensor, Tensor> cross_entropy(Tensor input, Tensor target, OptionalTensor weight,
                                         int64_t reduction, int64_t ignore_index,
                                         double smoothing) {
  TORCH_CHECK(smoothing >= 0.0 && smoothing <= 1.0,
              "label_smoothing must be between 0.0 and 1.0. Got: ", smoothing);
  if (input.sizes() == target.sizes()) {
    TORCH_CHECK(ignore_index < 0, "ignore_index is not supported for floating point target");
    return {probability_loss(input, target, weight, reduction, smoothing), Tensor()};
  }
  auto [loss, total] = nll_forward(input, target, weight, reduction, ignore_index);
  if (smoothing > 0.0) {
    const auto classes = input.size(class_dim(input));
    loss = (1 - smoothing) * loss +
           smooth_loss(input, target, weight, reduction, ignore_index) * (smoothing / classes);
  }
  return {loss, total};
}

// Returns the gradient of each element, before the sum over classes and the reduction.
Tensor undo_reduction(const Tensor& grad, const Tensor& input, int64_t reduction) {
  auto result = grad;
  if (reduction == at::Reduction::Mean)
    result = result / (input.numel() / input.size(class_dim(input)));
  result = -result;
  return reduction == at::Reduction::None ? result.unsqueeze(class_dim(input)) : result;
}

Tensor cross_entropy_backward(Tensor grad, Tensor input, Tensor target, OptionalTensor weight,
                              int64_t reduction, int64_t ignore_index, double smoothing,
                              Tensor total_weight) {
  const auto dim = class_dim(input);
  const auto classes = input.size(dim);
  if (input.sizes() == target.sizes()) {
    if (input.numel() == 0)
      return at::zeros_like(input);
    if (smoothing > 0)
      target = target * (1 - smoothing) + smoothing / classes;
    const auto each = undo_reduction(grad, input, reduction);
    if (is_defined(weight))
      return (each * broadcast_weight(*weight, input)) * target;
    return each * target;
  }
  if (smoothing <= 0)
    return nll_backward(grad, input, target, weight, reduction, ignore_index, total_weight);
  auto gradient = nll_backward(grad * (1 - smoothing), input, target, weight, reduction,
                               ignore_index, total_weight);
  const auto ignored = target == ignore_index;
  auto each = grad * (smoothing / classes);
  if (reduction == at::Reduction::Mean)
    each = each / smooth_denominator(ignored, target, weight);
  each = -each.expand(target.sizes()).masked_fill(ignored, 0);
  each = each.unsqueeze(dim);
  if (is_defined(weight))
    each = each * broadcast_weight(*weight, input);
  return gradient.add_(each);
}

Tensor cross_entropy_target_backward(Tensor grad, Tensor input, Tensor target,
                                     OptionalTensor weight, int64_t reduction, double smoothing) {
  TORCH_CHECK(input.sizes() == target.sizes(), "only class probabilities have a gradient");
  auto each = undo_reduction(grad, input, reduction);
  if (is_defined(weight))
    each = each * broadcast_weight(*weight, input);
  each = each * input;
  return smoothing > 0 ? each * (1 - smoothing) : each;
}

Tensor cross_entropy_weight_backward(Tensor grad, Tensor input, Tensor target, Tensor weight,
                                     int64_t reduction, double smoothing) {
  TORCH_CHECK_NOT_IMPLEMENTED(input.sizes() == target.sizes(),
                              "the derivative for 'weight' is not implemented");
  const auto dim = class_dim(input);
  if (smoothing > 0)
    target = target * (1 - smoothing) + smoothing / input.size(dim);
  const auto each = undo_reduction(grad, input, reduction) * (input * target);
  return at::sum_to(each, broadcast_weight(weight, input).sizes()).reshape(weight.sizes());
}

// ---- binary cross entropy (FunctionsManual.cpp) ----

Tensor binary_target_backward(Tensor grad, Tensor self, Tensor target, OptionalTensor weight,
                              int64_t reduction) {
  auto gradient = at::logit(self).neg_().mul_(grad);
  if (is_defined(weight))
    gradient.mul_(*weight);
  if (reduction == at::Reduction::Mean)
    gradient.div_(target.numel());
  return gradient;
}

Tensor logits_backward(Tensor grad, Tensor input, Tensor target, OptionalTensor weight,
                       OptionalTensor positive_weight, int64_t reduction) {
  Tensor gradient;
  if (is_defined(positive_weight)) {
    const auto weighted = positive_weight->mul(target);
    gradient = weighted.add(1).sub_(target).mul_(input.sigmoid()).sub_(weighted);
  } else {
    gradient = input.sigmoid().sub_(target);
  }
  gradient.mul_(grad);
  if (is_defined(weight))
    gradient.mul_(*weight);
  if (reduction == at::Reduction::Mean)
    gradient.div_(input.numel());
  return gradient;
}

Tensor logits_target_backward(Tensor grad, Tensor input, Tensor target, OptionalTensor weight,
                              OptionalTensor positive_weight, int64_t reduction) {
  Tensor gradient;
  if (is_defined(positive_weight)) {
    gradient =
        at::log_sigmoid(-input).sub_(at::log_sigmoid(input).mul_(*positive_weight)).mul_(grad);
  } else {
    gradient = -input * grad;
  }
  if (is_defined(weight))
    gradient.mul_(*weight);
  if (reduction == at::Reduction::Mean)
    gradient.div_(target.numel());
  return gradient;
}

// ---- What composed losses ask of their operands' shapes ----

// Returns how many dimensions the operands of triplet_margin_loss have.
int64_t triplet_dims(int64_t anchor, int64_t positive, int64_t negative) {
  TORCH_CHECK(anchor == positive && anchor == negative,
              "The anchor, positive, and negative tensors are expected to have the same number of "
              "dimensions, but got: anchor ",
              anchor, "D, positive ", positive, "D, and negative ", negative, "D inputs");
  return anchor;
}

// Returns the dimension of the operands of cosine_embedding_loss that holds the vectors.
int64_t cosine_embedding_dim(std::vector<int64_t> input1, std::vector<int64_t> input2,
                             std::vector<int64_t> target) {
  const auto dim = std::ssize(target);
  TORCH_CHECK(dim <= 1, "0D or 1D target tensor expected, multi-target not supported");
  TORCH_CHECK(std::ssize(input1) == dim + 1, dim, "D target tensor expects ", dim + 1,
              "D input tensors, but found inputs with sizes ", at::IntArrayRef(input1), " and ",
              at::IntArrayRef(input2), ".");
  return dim;
}

}  // namespace

void register_loss_operators() {
  static const torch::jit::RegisterOperators registered({
      pure_operator("aten_recompute::triplet_dims(int anchor, int positive, int negative) -> int",
                    &triplet_dims),
      pure_operator("aten_recompute::cosine_embedding_dim(int[] input1, int[] input2, "
                    "int[] target) -> int",
                    &cosine_embedding_dim),
      pure_operator("aten_recompute::nll_loss(Tensor input, Tensor target, Tensor? weight, "
                    "int reduction, int ignore_index) -> (Tensor, Tensor)",
                    &nll_forward),
      pure_operator("aten_recompute::nll_loss_backward(Tensor grad, Tensor input, Tensor target, "
                    "Tensor? weight, int reduction, int ignore_index, Tensor total_weight) "
                    "-> Tensor",
                    &nll_backward),
      pure_operator("aten_recompute::cross_entropy(Tensor input, Tensor target, Tensor? weight, "
                    "int reduction, int ignore_index, float smoothing) -> (Tensor, Tensor)",
                    &cross_entropy),
      pure_operator("aten_recompute::cross_entropy_backward(Tensor grad, Tensor input, "
                    "Tensor target, Tensor? weight, int reduction, int ignore_index, "
                    "float smoothing, Tensor total_weight) -> Tensor",
                    &cross_entropy_backward),
      pure_operator("aten_recompute::cross_entropy_target_backward(Tensor grad, Tensor input, "
                    "Tensor target, Tensor? weight, int reduction, float smoothing) -> Tensor",
                    &cross_entropy_target_backward),
      pure_operator("aten_recompute::cross_entropy_weight_backward(Tensor grad, Tensor input, "
                    "Tensor target, Tensor weight, int reduction, float smoothing) -> Tensor",
                    &cross_entropy_weight_backward),
      pure_operator("aten_recompute::binary_cross_entropy_target_backward(Tensor grad, "
                    "Tensor self, Tensor target, Tensor? weight, int reduction) -> Tensor",
                    &binary_target_backward),
      pure_operator("aten_recompute::binary_cross_entropy_with_logits_backward(Tensor grad, "
                    "Tensor self, Tensor target, Tensor? weight, Tensor? pos_weight, "
                    "int reduction) -> Tensor",
                    &logits_backward),
      pure_operator("aten_recompute::binary_cross_entropy_with_logits_target_backward("
                    "Tensor grad, Tensor self, Tensor target, Tensor? weight, "
                    "Tensor? pos_weight, int reduction) -> Tensor",
                    &logits_target_backward),
  });
}

}  // namespace aten_recompute
