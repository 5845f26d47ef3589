// What a method does with the memory of a region's inputs and outputs.
#pragma once

#include <ATen/core/ivalue.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace torch::jit {
struct Node;
}

namespace aten_recompute {

// It is known for a region that is the only one of its method. Where there are several, the memory
// outside of them is measured, and the plan for the whole call counts it.
struct MethodMemory {
  // Inputs that the method makes for the call: copies of attributes that it writes to, and leaves
  // that it returns (symbols::kBeforeRegions). They are held to the end of the backward, which may
  // run the region again.
  std::vector<size_t> copies;
  // Outputs that are written back to attributes, and are gone when the call ends.
  std::vector<size_t> written_back;
};

// Returns what the method does around the region, a node that form_regions() made in it.
MethodMemory method_memory_around(const torch::jit::Node* region);

// Returns the bytes of the copies among the region's inputs.
int64_t bytes_of_copies(const MethodMemory& memory, const std::vector<c10::IValue>& inputs);

}  // namespace aten_recompute
