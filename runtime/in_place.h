// Operators that overwrite an operand which dies there: elementwise ones, and softmax.
#pragma once

#include <ATen/core/stack.h>

#include <cstddef>
#include <functional>
#include <unordered_set>
#include <vector>

namespace torch::jit {
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// Which values of a graph lie in memory that the graph's operators made. A graph input does not,
// even where the program holds the last reference to it: behind it may lie a buffer of the caller's
// (from_blob), and behind a view of it, an element of it, or what a tape hands on, the same buffer.
class OwnMemory {
 public:
  bool contains(const torch::jit::Value* value) const { return values_.count(value) != 0; }

  // `node` comes after the nodes whose values it reads.
  void add_outputs_of(const torch::jit::Node* node);

 private:
  std::unordered_set<const torch::jit::Value*> values_;
};

// One way of computing an operator's result into the memory of an operand. Values, sizes, strides
// and dtype are those of the functional operator, without a new allocation.
struct InPlaceForm {
  size_t operand;                               // what is overwritten, counted from 0
  std::function<void(torch::jit::Stack&)> run;  // takes the operator's operands off the stack
  bool (*fits)(c10::ArrayRef<c10::IValue>, size_t operand);  // see may_overwrite()
};

// The forms of `node`'s operator, the best first; none for most operators.
std::vector<InPlaceForm> in_place_forms(const torch::jit::Node* node);

// `operands` are the operator's, the one that the form overwrites moved there. True where nobody
// else can see that operand's memory and the result would have its sizes, strides and dtype. Only
// then may form.run be called.
bool may_overwrite(const InPlaceForm& form, c10::ArrayRef<c10::IValue> operands);

// For planning: indices of the operands whose memory the result takes where they die at `node` and
// may_overwrite() holds, which for tensors of one shape, layout and dtype (operators with a scalar:
// of float32 or float64) it does. In the order in which they are tried.
std::vector<size_t> overwritable_operands(const torch::jit::Node* node);
// For planning: may_overwrite() asks that all tensors of this operator have the same sizes,
// strides, type and device, and more than one element.
bool overwrites_if_tensors_agree(const torch::jit::Node* node);
// For planning: of this operator's tensors may_overwrite() also asks that they are contiguous and
// on the CPU.
bool overwrites_rows(const torch::jit::Node* node);

}  // namespace aten_recompute
