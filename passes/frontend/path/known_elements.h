// The elements of some tensors without memory, while a path is recorded.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <unordered_set>

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// What a method asks about data (a cutoff, a cell, the largest index of an atom) mostly follows
// from a few small tensors. These are computed beside the tensors without memory that stand for
// them, so that such a question has its answer though the rest of the method runs without memory.
class KnownElements {
 public:
  // What is computed takes at most `most_bytes`.
  explicit KnownElements(int64_t most_bytes) : most_bytes_(most_bytes) {}

  // Notes the elements of a tensor that the method was given, which need no room.
  void give(const at::Tensor& without_memory, const at::Tensor& elements);

  // Returns the operands of a node with their elements. Returns nullopt where those of one are not
  // known, for nodes that draw random numbers or write to what the method was given, and for
  // operators of other libraries.
  std::optional<torch::jit::Stack> of(const torch::jit::Node* node,
                                      const torch::jit::Stack& operands) const;

  // Returns a tensor or a list of tensors with their elements; nullopt if those of one are not
  // known, and other values as they are.
  std::optional<c10::IValue> with_elements(const c10::IValue& value) const;

  // Returns whether there is room to compute the elements of a node's results.
  bool has_room(const torch::jit::Node* node, const torch::jit::Stack& without_memory);
  // Notes the elements of results. Those of a tensor whose layout they do not have are not known.
  void note(const torch::jit::Stack& without_memory, const torch::jit::Stack& elements);

  // Forgets the elements of all that shares the tensor's memory: a node has written to it.
  void forget_memory_of(const at::Tensor& without_memory);

 private:
  struct Known {
    c10::weak_intrusive_ptr<c10::TensorImpl> tensor;  // no other tensor gets its address
    at::Tensor elements;
  };

  void note(const at::Tensor& without_memory, const at::Tensor& elements);
  // Forgets tensors that are no more, and counts the bytes of what was computed for the others.
  void count_bytes();

  std::unordered_map<const c10::TensorImpl*, Known> known_;
  std::unordered_set<const void*> given_;  // memory of what the method was given
  int64_t most_bytes_;
  int64_t bytes_ = 0;       // at least those that were computed and are still known
  size_t num_asked_ = 0;    // how often somebody has asked for room
  size_t count_again_ = 0;  // from which time on counting is worth its time
};

}  // namespace aten_recompute
