// The gradients of forward values, added up while the backward of a joint graph is written.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ir/gradient_reach.h"

namespace aten_recompute {

// Whether the value is a list of tensors or of optional tensors.
bool is_list_of_tensors(const torch::jit::Value* value);

// Whether no element of the list can be None. The value must be a list.
bool has_tensor_elements(const torch::jit::Value* list);

// The forward values that require grad, and the sum of the gradients that each of them has got so
// far. Sums are nodes inserted at the graph's insert point:
//
//   add(x, a)         inserts nothing; the gradient of x is a
//   add(x, b)         inserts $0 = aten_recompute::accumulate(a, b); the gradient of x is $0
class GradientSums {
 public:
  explicit GradientSums(torch::jit::Graph& graph) : graph_(graph) {}

  // Marks the value as one that requires grad. Gradients of other values are ignored.
  void require(torch::jit::Value* value) { requires_grad_.insert(value); }
  // Does this if the value is, or can hold, a tensor.
  void require_tensor(torch::jit::Value* value);
  bool requires_grad(const torch::jit::Value* value) const {
    return requires_grad_.count(value) != 0;
  }
  const ReachedValues& required() const { return requires_grad_; }

  // Notes which values have requires_grad in eager PyTorch, where kernels may depend on it: a
  // weight has it although the method asks for the gradient of positions alone.
  void set_tracked(ReachedValues values) { tracked_ = std::move(values); }
  // Marks the outputs of a node that was added to the forward later, if one of its inputs is
  // marked.
  void track_outputs(const torch::jit::Node* node);
  bool is_tracked(const torch::jit::Value* value) const {
    return requires_grad(value) || tracked_.count(value) != 0;
  }

  // Notes that no tensor of the graph can hold complex numbers.
  void set_real(bool is_real) { is_real_ = is_real; }
  bool is_real() const { return is_real_; }

  // Makes `cast`, which is `value` under another type, share the gradient of `value`.
  void share_gradient(torch::jit::Value* cast, torch::jit::Value* value);

  // Passes each gradient of `reduced`, the result of aten_recompute::reduce_grad, on to the operand
  // of that node as it comes, in place of their sum. Where there is nothing to reduce, which is so
  // most of the time, eager has no node, and adds the gradients of all readers in one order:
  //
  //   %a = aten_recompute::reduce_grad(%g, ..)   %b = aten_recompute::reduce_grad(%g, ..)
  //   add(%b, 1), add(%a, 2), add(%b, 3)         the gradient of %g is 1 + 2 + 3, not 1 + 3 + 2
  void pass_to_operand(torch::jit::Value* reduced) { passing_.insert(reduced); }

  // Returns the sum so far, or nullptr where the gradient is undefined. The gradient of a list that
  // a node of the graph makes has the type of what was added; that of any other list is a
  // List[Optional[Tensor]].
  torch::jit::Value* gradient_of(torch::jit::Value* value) const;

  // Inserts and returns a List[Optional[Tensor]] of the gradients of `values`; returns nullptr
  // where none of them has one.
  torch::jit::Value* insert_list_of(c10::ArrayRef<torch::jit::Value*> values);

  // Adds to the gradient of `value`.
  void add(torch::jit::Value* value, torch::jit::Value* gradient);
  // Adds to the gradient of each of the values, from the last to the first if `reversed`.
  void add_each(c10::ArrayRef<torch::jit::Value*> values,
                c10::ArrayRef<torch::jit::Value*> gradients, bool reversed);

 private:
  // The value that `value` shares its gradient with, or `value` itself.
  torch::jit::Value* original(torch::jit::Value* value) const;

  torch::jit::Graph& graph_;
  ReachedValues requires_grad_;
  ReachedValues tracked_;
  bool is_real_ = false;
  std::unordered_map<torch::jit::Value*, torch::jit::Value*> gradients_;
  std::unordered_map<torch::jit::Value*, torch::jit::Value*> originals_;  // by cast
  std::unordered_set<torch::jit::Value*> passing_;                        // to what they reduce
};

}  // namespace aten_recompute
