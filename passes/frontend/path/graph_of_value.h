// The operators of a path from which one of its values is computed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace torch::jit {
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

struct GraphOfValue {
  std::shared_ptr<torch::jit::Graph> graph;  // its only output is the value
  std::vector<torch::jit::Value*> inputs;    // for each of its inputs, the value of the path
};

// Returns a copy of the operators that the value is computed from, back to what `is_input` holds
// for. std::nullopt where `is_left_out` holds for one of them, or one has blocks.
std::optional<GraphOfValue> graph_of_value(
    torch::jit::Value* value, const std::function<bool(const torch::jit::Value*)>& is_input,
    const std::function<bool(const torch::jit::Node*)>& is_left_out);

}  // namespace aten_recompute
