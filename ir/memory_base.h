// Follows a value back to the value whose memory it is in.
#pragma once

namespace torch::jit {
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// Which operators that may return their first input, or a view of it, are followed.
enum class Aliasing {
  kAll,
  kOfAten  // those of other libraries, this one included, count as operators that copy
};

// Returns whether the node's results are, or may be, in the memory of its first input: views,
// operators that copy only if they have to, casts, in-place operators, and reads of the elements of
// a list or dict.
bool shares_memory_with_input(const torch::jit::Node* node, Aliasing aliasing = Aliasing::kAll);

// Returns the first value of the chain of such nodes that leads to `value`: what made the memory,
// or gave it to the graph. It may be a list, or `value` itself.
const torch::jit::Value* memory_base(const torch::jit::Value* value,
                                     Aliasing aliasing = Aliasing::kAll);
torch::jit::Value* memory_base(torch::jit::Value* value, Aliasing aliasing = Aliasing::kAll);

}  // namespace aten_recompute
