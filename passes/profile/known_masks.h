// Masks of a region, with as many true elements as a call has: for operators of the backward that
// select with them. On zeros they would select nothing.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "passes/profile/described_values.h"
#include "passes/profile/observed_forward.h"

namespace aten_recompute {

class KnownMasks {
 public:
  // All references must outlive this.
  KnownMasks(const JointProgram& program, DescribedStorages& storages, ObservedForward& forward)
      : program_(program), storages_(storages), forward_(forward) {}

  // Notes the masks that an instruction of the forward made, and how many elements it has selected
  // with those that it read. That number may be larger than what the inputs give: an earlier call
  // has shown it (ProfileAssumptions).
  void note(size_t instruction, const std::vector<c10::IValue>& operands,
            const torch::jit::Stack& results);

  // Returns the operands with a real mask in place of each described one, of which the first
  // elements are true. Returns nullopt where there is none, or one of which nothing is known.
  std::optional<std::vector<c10::IValue>> with_real_masks(std::vector<c10::IValue> operands);

 private:
  struct Mask {
    size_t instruction = 0;
    size_t output = 0;
    int64_t num_elements = 0;
    std::optional<int64_t> selected;
  };

  // A view of a mask with as many elements selects as many.
  Mask* find(const at::Tensor& mask);
  std::optional<at::Tensor> real(const at::Tensor& mask);

  const JointProgram& program_;
  DescribedStorages& storages_;
  ObservedForward& forward_;
  std::unordered_map<int32_t, Mask> masks_;  // by their storage
};

}  // namespace aten_recompute
