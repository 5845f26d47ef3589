// Counts the memory that meta tensors would take.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace aten_recompute {

// While an instance exists, meta tensors that this thread makes report their sizes, so that a
// MemoryWatch counts them as it counts tensors with memory.
class CountMetaMemory {
 public:
  CountMetaMemory();
  ~CountMetaMemory();
  CountMetaMemory(const CountMetaMemory&) = delete;
  CountMetaMemory& operator=(const CountMetaMemory&) = delete;

 private:
  bool counted_before_;
};

// While an instance exists, meta tensors that this thread makes are not counted.
class PauseMetaMemory {
 public:
  PauseMetaMemory();
  ~PauseMetaMemory();
  PauseMetaMemory(const PauseMetaMemory&) = delete;
  PauseMetaMemory& operator=(const PauseMetaMemory&) = delete;

 private:
  bool counted_before_;
};

// Reports a tensor that was made during a pause, unless it has been reported since, or this is a
// pause.
void count_meta_memory(const at::Tensor& tensor);

// Marks the tensor as one without memory of its own, from now on. Must be called during a pause.
void exempt_meta_memory(const at::Tensor& tensor);

// Returns the bytes of the memory that a meta tensor stands for.
int64_t meta_memory_of(const at::Tensor& tensor);

}  // namespace aten_recompute
