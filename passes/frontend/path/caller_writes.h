// What a method writes that its caller can see, while its path is recorded.
#pragma once

#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "passes/frontend/path/path_builder.h"
#include "runtime/tensor_snapshots.h"

namespace aten_recompute {

// Writes to the caller's tensors take place while a path is recorded, because later operators read
// them, and are undone when this object goes out of scope. Changes of attributes, lists and dicts
// do not: they are remembered, and come last in the path.
class CallerWrites {
 public:
  CallerWrites() = default;
  ~CallerWrites();
  CallerWrites(const CallerWrites&) = delete;
  CallerWrites& operator=(const CallerWrites&) = delete;

  // Notes that the method was given the value: as an input or as an attribute. The tensors in it,
  // at any depth in tuples, lists and dicts, are the caller's.
  void add_given(const c10::IValue& value);

  // Returns whether the tensor is in memory of the caller.
  bool is_callers(const at::Tensor& tensor) const;
  // Returns whether the tensor is in memory that the path made. A tensor without memory is neither.
  bool is_own(const at::Tensor& tensor) const;

  // Notes that the path computes with a copy of a tensor that it was given, and writes it back at
  // its end: the tensor's memory counts as the path's own.
  void take_over(const at::Tensor& tensor);
  bool is_taken(const at::Tensor& tensor) const;
  // Returns whether the method was given the tensor's memory more than once.
  bool is_given_twice(const at::Tensor& tensor) const;

  // To be called before an operator that may write to the value.
  void prepare_write(const c10::IValue& value);

  // Remembers a node that sets an attribute, or changes a list or dict of the caller, with its
  // operands.
  void add_change(torch::jit::Node* node, std::vector<Item> operands);
  // Notes a change that the path makes at its start, or by itself at its end.
  void add_other_change() { has_other_changes_ = true; }

  // Returns whether there are changes of either kind. Writes to tensors, where the method makes
  // them, are none.
  bool has_changes() const { return !changes_.empty() || has_other_changes_; }
  // Returns whether lists or dicts of the caller are changed.
  bool changes_containers() const;

  // Adds the changes to the path, in their order.
  void write_changes(PathBuilder& builder);

 private:
  struct Change {
    torch::jit::Node* node;
    std::vector<Item> operands;
  };

  std::unordered_map<const void*, size_t> given_;  // how often, by storage
  std::unordered_set<const void*> taken_;          // storages
  TensorSnapshots snapshots_;
  std::vector<Change> changes_;
  bool has_other_changes_ = false;
};

}  // namespace aten_recompute
