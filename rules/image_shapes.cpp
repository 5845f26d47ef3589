#include "rules/image_shapes.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <iterator>

namespace aten_recompute::shapes {

using torch::jit::Stack;

Stack adaptive_pool(const Operands& operands) {
  const auto& input = operands[0].toTensor();
  auto sizes = input.sizes().vec();
  const auto asked = operands.named("output_size").toIntVector();
  if (asked.size() > sizes.size())
    return {};
  std::copy(asked.begin(), asked.end(), sizes.end() - std::ssize(asked));
  return {at::empty(sizes, input.options(), input.suggest_memory_format())};
}

Stack padded(const Operands& operands) {
  const auto& input = operands[0].toTensor();
  const auto pad = operands.named("pad").toIntVector();
  auto sizes = input.sizes().vec();
  if (pad.size() > 2 * sizes.size())
    return {};
  for (size_t i = 0; i + 1 < pad.size(); i += 2)
    sizes[sizes.size() - 1 - i / 2] += pad[i] + pad[i + 1];
  return {empty(sizes, input.options())};
}

Stack unpadded(const Operands& operands) {
  return {empty(operands[1].toIntVector(), operands[0].toTensor().options())};
}

Stack unfolded(const Operands& operands) {
  const auto& input = operands[0].toTensor();
  if (input.dim() < 3)
    return {};
  const auto kernel = operands.ints("kernel_size", 2, 1);
  const auto dilation = operands.ints("dilation", 2, 1);
  const auto padding = operands.ints("padding", 2, 0);
  const auto stride = operands.ints("stride", 2, 1);
  int64_t positions = 1;
  for (size_t i = 0; i < 2; ++i) {
    const auto length = input.size(static_cast<int64_t>(i) - 2);
    positions *= (length + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
  }
  Sizes sizes{input.size(-3) * kernel[0] * kernel[1], positions};
  if (input.dim() == 4)
    sizes.insert(sizes.begin(), input.size(0));
  return {empty(sizes, input.options())};
}

Stack folded(const Operands& operands) {
  const auto& input = operands[0].toTensor();
  if (input.dim() < 2)
    return {};
  const auto kernel = operands.ints("kernel_size", 2, 1);
  const auto size = operands.ints("output_size", 2, 1);
  Sizes sizes{input.size(-2) / (kernel[0] * kernel[1]), size[0], size[1]};
  if (input.dim() == 3)
    sizes.insert(sizes.begin(), input.size(0));
  return {empty(sizes, input.options())};
}

Stack sampled(const Operands& operands) {
  const auto& input = operands[0].toTensor();
  const auto& grid = operands[1].toTensor();
  Sizes sizes{input.size(0), input.size(1)};
  for (int64_t i = 1; i + 1 < grid.dim(); ++i)
    sizes.push_back(grid.size(i));
  return {empty(sizes, input.options())};
}

Stack sampler_gradients(const Operands& operands) {
  const auto like = [&](const char* name) {
    const auto tensor = operands.tensor(name);
    return empty(tensor.sizes().vec(), tensor.options());
  };
  return {like("input"), like("grid")};
}

}  // namespace aten_recompute::shapes
