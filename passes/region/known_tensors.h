// What is known of the tensors of a graph for the inputs of one call.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "passes/profile/region_profile.h"

namespace torch::jit {
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// Sizes of the values of a graph for the inputs of one call: Profile::tensors.
using KnownTensors = std::unordered_map<size_t, std::vector<TensorDescription>>;

// Returns the sizes of a tensor, or of the first element of a list of tensors; nullptr where they
// are not known.
const std::vector<int64_t>* sizes_of(const torch::jit::Value* value, const KnownTensors& known);

// Returns the operands of the node. A list of tensors that a node of the graph makes stands there
// as its elements.
std::vector<torch::jit::Value*> flat_operands(const torch::jit::Node* node);

}  // namespace aten_recompute
