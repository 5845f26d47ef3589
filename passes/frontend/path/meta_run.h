// Lets the operators of a method run on tensors without memory while its path is recorded.
#pragma once

#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "ir/meta_copies.h"
#include "passes/frontend/path/known_elements.h"

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// Puts what a node's shape function returns in place of the node's operands on the stack. For some
// operators, LibTorch has kernels for the meta device in Python alone. Returns false where there is
// no such function, not all tensors are on the meta device, or the function refuses them.
bool run_shape_function(torch::jit::Node* node, torch::jit::Stack& stack);

// The forward of a call may need more memory than a budget allows. Its path is recorded without
// that memory then: all tensors that the method gets or makes are on the meta device.
class MetaRun {
 public:
  // `memory_bytes` are those that a call may take.
  explicit MetaRun(int64_t memory_bytes) : known_(memory_bytes / kPartForElements) {}

  // Returns what stands for a value that the method was given. Throws NotRecordable for tensors
  // that are not dense, and where tensors are on two devices.
  c10::IValue of(const c10::IValue& given);

  // Runs a node without memory, or on known elements (known_elements.h) where it needs them.
  // `stack` has its operands, and then its results. Where the node asks for the device of a tensor,
  // the answer is that of the tensors that were given. Throws CallRaises where the node needs
  // elements that are not known, or raises an exception.
  void run(torch::jit::Node* node, torch::jit::Stack& stack);

 private:
  // Changes the operands of a node such that it runs without memory.
  void prepare(const torch::jit::Node* node, torch::jit::Stack& operands);
  // Runs aten::index without memory where its masks are known, though what it indexes is not.
  bool select_by_known_masks(torch::jit::Node* node, torch::jit::Stack& stack);
  void note_given(const c10::IValue& given);

  // A part of the memory that leaves room for what operators take besides their results.
  static constexpr int64_t kPartForElements = 2;

  MetaCopies copies_;
  KnownElements known_;
  std::vector<at::Tensor> constants_;  // of which there are copies
};

}  // namespace aten_recompute
