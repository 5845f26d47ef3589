// Decides whether an operator's result may take the memory of one of its operands. The run time
// applies this rule to real tensors (runtime/in_place.h), and planning applies it to the tensors of
// a profile (passes/strategy/graph_problem.h), so the predicted and the measured peak agree.
//
// An operand is overwritten if all of these conditions hold:
//   1. The operator has a form that writes into that operand: OverwritingForm in
//      ir/operator_facts.h.
//   2. An operator of the same program made the memory: OwnMemory. The forward and the backward of
//      a region are two programs; the planner's Scheduler tracks what each of them made
//      (Step::reusable_operands).
//   3. This is the last use of the operand, and nothing else can see its memory. The run time looks
//      at reference counts, the simulator at the values that are alive.
//   4. The operand is all that its memory holds. The result would keep the rest alive, too, where
//      the operand is a slice of a larger tensor.
//   5. The operands' layouts satisfy the form's condition: layouts_allow_overwriting().
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <unordered_set>
#include <vector>

#include "ir/operator_facts.h"

namespace torch::jit {
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// The values of a graph whose memory was made by operators of the graph. Graph inputs do not belong
// to them, even if the program holds the last reference: an input may wrap a buffer of the caller
// (from_blob), and so may a view of it, an element of it, or a result of a tape.
class OwnMemory {
 public:
  bool contains(const torch::jit::Value* value) const { return values_.count(value) != 0; }

  // Adds the outputs of `node` if their memory is the graph's own. Call it for the nodes in
  // execution order.
  void add_outputs_of(const torch::jit::Node* node);

 private:
  std::unordered_set<const torch::jit::Value*> values_;
};

// The properties of an operand that the rule uses. Sizes and strides are borrowed from the tensor.
struct OperandLayout {
  // kTensor means a tensor with strides.
  enum class Kind { kTensor, kIntegers, kComplexNumber, kOther };

  Kind kind = Kind::kOther;
  std::vector<int64_t> integers;  // the elements of a list of ints
  // The fields below are set for kTensor only.
  at::IntArrayRef sizes;
  at::IntArrayRef strides;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  bool is_contiguous = false;
  bool is_dense = false;  // the elements lie without gaps or overlaps
  // An elementwise result in new memory has the same strides. Where it has not, those of dimensions
  // of size 1 differ: they say nothing of the memory, but the layout of what follows.
  bool keeps_strides = false;
  bool fills_memory = false;  // its memory has no more bytes than it has elements for
  // Dense floating-point elements in an ordinary tensor that requires no gradient.
  bool is_plain = false;

  int64_t num_elements() const { return c10::multiply_integers(sizes); }
};

// Returns the layout of a tensor. `device` is the tensor's device or, for a tensor without memory,
// the device that it stands for.
OperandLayout layout_of(const at::Tensor& tensor, at::Device device);
// Returns the layout of any operand; a tensor is on its own device.
OperandLayout layout_of(const c10::IValue& operand);

// Returns whether ATen gives the result of a tensor and a number the tensor's strides, where its
// elements lie without gaps. ATen orders dimensions by strides then, which leaves open where one of
// size 1 comes, unless the strides are those of a new contiguous tensor.
bool number_keeps_strides(at::IntArrayRef sizes, at::IntArrayRef strides, bool is_contiguous);

// Returns whether the result may be written into operand number `overwritten`, so that it has the
// same bits, sizes, strides and type as in new memory.
bool layouts_allow_overwriting(ReuseCondition condition, c10::ArrayRef<OperandLayout> operands,
                               size_t overwritten);

// Returns whether the caller holds the only reference to the tensor, and the tensor the only one to
// its memory.
bool is_only_reference(const at::Tensor& tensor);

}  // namespace aten_recompute
