// What may be overwritten: the one rule that decides whether an operator's result takes the memory
// of one of its operands. The run time asks it about real tensors (runtime/in_place.h), the
// planning problem about the tensors of a profile (passes/strategy/graph_problem.h), so predicted
// and measured peak cannot differ.
//
// An operand is overwritten where all of this holds:
//   1. The operator has a form that writes into that operand (OverwritingForm in
//   ir/operator_facts.h).
//   2. The memory was made by an operator of the same program (OwnMemory). The forward and the
//      backward of a region are two programs; between them the planner's Scheduler keeps account
//      (Step::reusable_operands).
//   3. The operand dies there, and nobody else can see its memory. The run time looks at reference
//      counts, the simulator at the values that are alive.
//   4. The operands' layouts satisfy the form's condition: layouts_allow_overwriting().
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

// Which values of a graph lie in memory that the graph's operators made. A graph input does not,
// even where the program holds the last reference to it: behind it may lie a buffer of the caller's
// (from_blob), and behind a view of it, an element of it, or a result of a tape, the same buffer.
class OwnMemory {
 public:
  bool contains(const torch::jit::Value* value) const { return values_.count(value) != 0; }

  // Must be called after the nodes whose values `node` reads.
  void add_outputs_of(const torch::jit::Node* node);

 private:
  std::unordered_set<const torch::jit::Value*> values_;
};

// What the rule looks at of an operand. Sizes and strides are borrowed.
struct OperandLayout {
  // A tensor here is one with strides.
  enum class Kind { kTensor, kIntegers, kComplexNumber, kOther };

  Kind kind = Kind::kOther;
  std::vector<int64_t> integers;
  // The rest speaks of a tensor.
  at::IntArrayRef sizes;
  at::IntArrayRef strides;
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
  bool is_contiguous = false;
  bool is_dense = false;  // the elements fill their memory without gaps or overlaps
  // Dense floating-point elements in an ordinary tensor that requires no gradient.
  bool is_plain = false;

  int64_t num_elements() const { return c10::multiply_integers(sizes); }
};

// `device`: where the tensor lies or, for one without memory, would lie.
OperandLayout layout_of(const at::Tensor& tensor, at::Device device);
// Any operand; a tensor on its own device.
OperandLayout layout_of(const c10::IValue& operand);

// Whether the result may be written into operand `overwritten`: it then has the bits, sizes,
// strides and type that it would have in memory of its own.
bool layouts_allow_overwriting(ReuseCondition condition, c10::ArrayRef<OperandLayout> operands,
                               size_t overwritten);

// Whether the caller's reference is the only one to the tensor, and the tensor's to its memory.
bool is_only_reference(const at::Tensor& tensor);

}  // namespace aten_recompute
