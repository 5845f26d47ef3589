// The gradients of forward values, added up while the backward of a joint graph is written.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace aten_recompute {

bool is_list_of_tensors(const torch::jit::Value* value);

// New nodes stand at the graph's insert point.
//
//   add(x, a)         nothing: the gradient of x is a
//   add(x, b)         $0 = aten_recompute::accumulate(a, b); the gradient of x is $0
class GradientSums {
 public:
  explicit GradientSums(torch::jit::Graph& graph) : graph_(graph) {}

  // From now on `value` takes part: what is added to others is dropped.
  void require(torch::jit::Value* value) { requires_grad_.insert(value); }
  bool requires_grad(torch::jit::Value* value) const { return requires_grad_.count(value) != 0; }
  const std::unordered_set<torch::jit::Value*>& required() const { return requires_grad_; }

  // `cast` is `value` under another type: their gradients are one.
  void make_one(torch::jit::Value* cast, torch::jit::Value* value);

  // The sum so far; nullptr: undefined. Of a list that is made here the list of what was added, of
  // any other a List[Optional[Tensor]].
  torch::jit::Value* of(torch::jit::Value* value) const;

  // List[Optional[Tensor]] of the gradients of `values`; nullptr where none has one.
  torch::jit::Value* list_of(c10::ArrayRef<torch::jit::Value*> values);

  void add(torch::jit::Value* value, torch::jit::Value* gradient);

 private:
  torch::jit::Value* named(torch::jit::Value* value) const;

  torch::jit::Graph& graph_;
  std::unordered_set<torch::jit::Value*> requires_grad_;
  std::unordered_map<torch::jit::Value*, torch::jit::Value*> gradients_;
  std::unordered_map<torch::jit::Value*, torch::jit::Value*> other_names_;
};

}  // namespace aten_recompute
