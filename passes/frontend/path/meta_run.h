// Lets the operators of a method run on tensors without memory while its path is recorded.
#pragma once

#include <ATen/core/stack.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "ir/meta_copies.h"

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// The forward of a call may need more memory than a budget allows. Its path is recorded without
// that memory then: all tensors that the method gets or makes are on the meta device, and an
// operator that needs their elements raises an exception.
class MetaRun {
 public:
  // Returns what stands for a value that the method was given. Throws NotRecordable for tensors
  // that are not dense, and where tensors are on two devices.
  c10::IValue of(const c10::IValue& given);

  // Changes the operands of a node such that it runs without memory, in a MetaMode. Where it asks
  // for the device of a tensor, the answer will be that of the tensors that were given.
  void prepare(const torch::jit::Node* node, torch::jit::Stack& operands);
  // To be called when it has run: counts its writes, which it need not have done without memory.
  void finish();

 private:
  MetaCopies copies_;
  std::vector<at::Tensor> constants_;                    // of which there are copies
  std::vector<std::pair<at::Tensor, int64_t>> written_;  // by the node, and its version before
};

}  // namespace aten_recompute
