// Real memory for the operands of a node that a profile runs.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "passes/profile/described_values.h"
#include "passes/profile/node_results.h"
#include "passes/profile/zeroed_memory.h"
#include "runtime/program.h"

namespace aten_recompute {

// How a node may treat its operands.
struct OperandAccess {
  // It gets the caller's own tensors; otherwise zeros in their place.
  bool callers_tensors = false;
  // It leaves zeros as they are, so that the next node can be given the same memory.
  bool shared_zeros = false;
};

struct RealOperands {
  torch::jit::Stack values;
  OperandStorages storages;  // of `values`
  // What stands for described storages, by their index; it must live as long as `storages` is used.
  std::unordered_map<int32_t, c10::Storage> memory;
};

// Makes real tensors of described ones.
class OperandMaker {
 public:
  // Both must outlive this.
  OperandMaker(const Program& program, DescribedStorages& storages)
      : program_(program), storages_(storages) {}

  // Returns `operands` with real tensors, filled with zeros, in place of described ones. What is
  // opaque is computed by running the instruction that made it. `memory` has one tensor of each
  // storage among the operands. With `shared_zeros`, memory from earlier calls is used again.
  RealOperands make(const std::vector<c10::IValue>& operands, const std::vector<at::Tensor>& memory,
                    OperandAccess access);

  // Returns the bytes that are kept for the next call.
  int64_t kept_bytes() const { return zeroed_.bytes(); }
  // Gives back that memory.
  void release_zeros() { zeroed_.release(); }

 private:
  using Memory = std::unordered_map<int32_t, c10::Storage>;

  bool has_memory(int32_t storage, const at::Tensor& tensor) const;
  c10::Storage make_storage(int32_t storage, const at::Tensor& tensor, bool shared);
  void reserve_zeros(const std::vector<at::Tensor>& memory);
  c10::IValue make_value(const c10::IValue& value, OperandAccess access, Memory& real);
  at::Tensor make_tensor(const at::Tensor& tensor, OperandAccess access, Memory& real);

  const Program& program_;
  DescribedStorages& storages_;
  ZeroedMemory zeroed_;
};

}  // namespace aten_recompute
