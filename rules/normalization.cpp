// Rules of normalizations. The forward is replaced by the operator that also returns the
// statistics.
#include "rules/families.h"

namespace aten_recompute {

namespace {

// As in ATen, the samples of a batch become the channels of one sample, which batch_norm
// normalizes. With statistics of the input, aten_recompute::instance_norm is this batch_norm and
// updates the running statistics, too.
Rule instance_norm() {
  return {.op = "aten::instance_norm", .forward = R"(
    batch = input.size(0)
    flat = input.contiguous().view([1, batch * input.size(1)] + input.size()[2:])
    scales = weight
    if scales is not None:
        scales = scales.repeat([batch])
    offsets = bias
    if offsets is not None:
        offsets = offsets.repeat([batch])
    if use_input_stats:
        normalized, a, b, c, d = recompute.instance_norm(
            flat, scales, offsets, running_mean, running_var, batch, momentum, eps, cudnn_enabled)
    else:
        means = recompute.instance_statistics(torch._unwrap_optional(running_mean), batch)
        variances = recompute.instance_statistics(torch._unwrap_optional(running_var), batch)
        normalized = torch.batch_norm(
            flat, scales, offsets, means, variances, False, momentum, eps, cudnn_enabled)
    return normalized.view(input.size()))"};
}

// The running statistics that the forward sees. In evaluation they are copied, because a call in
// training may change them before the backward.
constexpr const char* kSeenStatistics = R"(
    seen_mean = running_mean
    seen_var = running_var
    if not training:
        if seen_mean is not None:
            seen_mean = recompute.snapshot(seen_mean)
        if seen_var is not None:
            seen_var = recompute.snapshot(seen_var))";

// In training, the gradient does not depend on the running statistics, so they are not kept. In
// evaluation, a second run of the forward must find the statistics of the first, which a call in
// training may have changed. The gradient reads them as they are when it is computed, as eager's
// does.
Rule batch_norm() {
  return {.op = "aten::batch_norm",
          .forward = std::string(kSeenStatistics) + R"(
    return recompute.batch_norm(
        input, weight, bias, seen_mean, seen_var, training, momentum, eps, cudnn_enabled))",
          .extras = {"mean", "inverse", "reserve", "implementation: int"},
          .gradients = {{"weight, bias, input", R"(
    grad_input, grad_weight, grad_bias = recompute.batch_norm_backward(
        implementation, input, grad, weight, None if training else running_mean,
        None if training else running_var, mean, inverse, training, eps,
        [needs_input, needs_weight, needs_bias], reserve)
    return grad_weight, grad_bias, grad_input)"}}};
}

// The pass that makes this operator: passes/region/fuse_batch_norm.h. The gradient computes from
// the input where it was clamped, so the result is not kept for that. It computes with what the
// forward has seen, because eager, which has kept the result, does not notice if the caller changes
// the bias or running statistics.
Rule clamped_batch_norm() {
  return {.op = "aten_recompute::clamped_batch_norm",
          .forward = std::string(kSeenStatistics) + R"(
    seen_weight = weight
    if seen_weight is not None:
        seen_weight = recompute.snapshot(seen_weight)
    seen_bias = bias
    if seen_bias is not None:
        seen_bias = recompute.snapshot(seen_bias)
    y, mean, inverse, reserve, implementation = recompute.batch_norm(
        input, seen_weight, seen_bias, seen_mean, seen_var, training, momentum, eps, cudnn_enabled,
        lower, upper)
    return y, mean, inverse, reserve, implementation, seen_weight, seen_bias, seen_mean, seen_var)",
          .extras = {"mean", "inverse", "reserve", "implementation: int",
                     "seen_weight: Optional[Tensor]", "seen_bias: Optional[Tensor]",
                     "seen_mean: Optional[Tensor]", "seen_var: Optional[Tensor]"},
          .gradients = {{"weight, bias, input", R"(
    grad_input, grad_weight, grad_bias = recompute.batch_norm_backward(
        implementation, input, grad, weight, None if training else running_mean,
        None if training else running_var, mean, inverse, training, eps,
        [needs_input, needs_weight, needs_bias], reserve, lower, upper, seen_weight, seen_bias,
        None if training else seen_mean, None if training else seen_var)
    return grad_weight, grad_bias, grad_input)"}}};
}

// Half precision is normalized in single precision. On GPUs, ATen has a kernel of its own.
Rule rms_norm() {
  return {.op = "aten::rms_norm",
          .forward = R"(
    dims = recompute.normalized_dims(input.size(), normalized_shape, recompute.size_of(weight))
    computed = input.to(recompute.computed_type(input.dtype))
    squares = torch.pow(computed, 2).mean(dims, True)
    inverse = torch.rsqrt(squares + recompute.rms_norm_eps(eps, computed.dtype))
    result = computed * inverse
    if weight is not None:
        result = result * weight
    result = recompute.contiguous_unless_channels_last(result, input.size(), input.stride())
    return result.to(input.dtype))",
          .on_cpu_only = true};
}

}  // namespace

std::vector<Rule> normalization_rules() {
  return {
      rms_norm(),
      {.op = "aten_recompute::contiguous_unless_channels_last", .gradients = {{"self", "grad"}}},
      instance_norm(),
      {.op = "aten_recompute::instance_norm",
       .gradients = {{"weight, bias, input",
                      "    grad_input, grad_weight, grad_bias = recompute.batch_norm_backward("
                      "result4, input, grad, weight, None, None, result1, result2, True, eps, "
                      "[needs_input, needs_weight, needs_bias], result3)\n"
                      "    return grad_weight, grad_bias, grad_input"}}},
      batch_norm(),
      clamped_batch_norm(),
      {.op = "aten::layer_norm",
       .forward = "torch.native_layer_norm(input, normalized_shape, weight, bias, eps)",
       .extras = {"mean", "rstd"},
       .gradients = {{"input, weight, bias",
                      "torch.native_layer_norm_backward(grad, input, normalized_shape, mean, rstd, "
                      "weight, bias, [needs_input, needs_weight, needs_bias])"}}},
      {.op = "aten::native_layer_norm",
       .gradients = {{"input, weight, bias",
                      "torch.native_layer_norm_backward(grad, input, normalized_shape, result1, "
                      "result2, weight, bias, [needs_input, needs_weight, needs_bias])"}}},
      {.op = "aten::group_norm",
       .forward = "recompute.group_norm(input, num_groups, weight, bias, eps)",
       .extras = {"mean", "rstd"},
       .gradients = {{"input, weight, bias",
                      "recompute.group_norm_backward(grad, input, mean, rstd, weight, num_groups, "
                      "[needs_input, needs_weight, needs_bias])"}}},
  };
}

}  // namespace aten_recompute
