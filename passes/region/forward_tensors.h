// The sizes of all tensors of a region's forward, for the inputs of one call.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "passes/profile/region_profile.h"
#include "passes/region/row_dimensions.h"

namespace torch::jit {
struct Graph;
}  // namespace torch::jit

namespace aten_recompute {

// By the place of a value in the graph, so that they hold for each copy of it.
class ForwardTensors {
 public:
  // Profiles the forward (passes/profile/profile.h), without a backward. Gradients that the method
  // asks for are expanded for that. Throws NotProfiled.
  ForwardTensors(const std::shared_ptr<torch::jit::Graph>& forward,
                 const std::vector<bool>& requires_grad, const std::vector<c10::IValue>& inputs,
                 const ProfileAssumptions& seen = {}, std::optional<at::Device> described = {},
                 int64_t most_bytes = std::numeric_limits<int64_t>::max());

  // Returns them for the values of that forward or of a copy.
  KnownTensors of(const torch::jit::Graph& forward) const;

 private:
  std::vector<std::vector<TensorDescription>> inputs_;
  std::vector<std::vector<std::vector<TensorDescription>>> outputs_;  // per node and output
};

}  // namespace aten_recompute
