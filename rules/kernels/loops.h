// The loops of an elementwise operator or a sum over its tensors, as ATen's iterator arranges them.
#pragma once

#include <ATen/TensorIterator.h>

#include <array>
#include <cstdint>

#include "rules/kernels/vectorized.h"

namespace aten_recompute {

constexpr int64_t kMostDims = 6;

// Loops over up to three tensors, the innermost first. The first tensor is the result. Strides are
// in elements.
struct Loops {
  int64_t num_dims = 0;
  std::array<int64_t, kMostDims> sizes;
  std::array<std::array<int64_t, kMostDims>, 3> strides{};
  int64_t num_blocks = 1;  // of the two innermost dimensions

  // The iterator has at most kMostDims dimensions.
  explicit Loops(const at::TensorIteratorBase& iterator) : num_dims(iterator.ndim()) {
    sizes.fill(1);
    for (int dim = 0; dim < num_dims; ++dim) {
      sizes[dim] = iterator.shape()[dim];
      if (dim >= 2)
        num_blocks *= sizes[dim];
    }
    for (int tensor = 0; tensor < iterator.ntensors(); ++tensor) {
      const auto bytes = static_cast<int64_t>(iterator.element_size(tensor));
      for (int dim = 0; dim < num_dims; ++dim)
        strides[tensor][dim] = iterator.strides(tensor)[dim] / bytes;
    }
  }

  int64_t block_size() const { return sizes[0] * sizes[1]; }

  // Calls `run` with the offset of each tensor for blocks number `begin` to `end`.
  template <class Run>
  ATEN_RECOMPUTE_INLINED void for_each_block(int64_t begin, int64_t end, const Run& run) const {
    std::array<int64_t, kMostDims> index{};
    std::array<int64_t, 3> offsets{};
    auto rest = begin;
    for (int64_t dim = 2; dim < num_dims; ++dim) {
      index[dim] = rest % sizes[dim];
      rest /= sizes[dim];
      for (int tensor = 0; tensor < 3; ++tensor)
        offsets[tensor] += index[dim] * strides[tensor][dim];
    }
    for (int64_t block = begin; block < end; ++block) {
      run(offsets);
      for (int64_t dim = 2; dim < num_dims; ++dim) {
        const bool is_complete = ++index[dim] == sizes[dim];
        const auto step = is_complete ? 1 - sizes[dim] : int64_t{1};
        for (int tensor = 0; tensor < 3; ++tensor)
          offsets[tensor] += step * strides[tensor][dim];
        if (!is_complete)
          break;
        index[dim] = 0;
      }
    }
  }
};

}  // namespace aten_recompute
