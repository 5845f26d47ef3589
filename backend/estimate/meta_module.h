// A module and its inputs without memory.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <torch/csrc/jit/api/module.h>

#include <optional>
#include <vector>

namespace aten_recompute {

struct MetaCall {
  torch::jit::Module module;  // not lowered; in a compilation unit of its own
  std::vector<c10::IValue> inputs;
  at::Device device;  // that the tensors stand for
};

// Returns a copy of the module and of the inputs in which each tensor is one on the meta device,
// with the same sizes, strides, type and requires_grad. What shares memory in the original shares a
// storage in the copy, and one tensor under two names is one tensor. `device`: that of the original
// tensors if nothing is given; tensors that are on the meta device themselves count as the CPU's.
// Throws std::invalid_argument for tensors that have no strides, such as sparse ones.
MetaCall on_meta(const torch::jit::Module& module, const std::vector<c10::IValue>& inputs,
                 std::optional<at::Device> device);

}  // namespace aten_recompute
