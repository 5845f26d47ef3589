// The device that a graph is compiled for, as the types of its inputs tell it.
#pragma once

#include <ATen/core/stack.h>

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// Gives each tensor among the graph's inputs a type that says that it is on the CPU.
void put_inputs_on_cpu(torch::jit::Graph& graph);

// Returns whether the types of all tensors among the graph's inputs say that they are on the CPU.
bool inputs_are_on_cpu(const torch::jit::Graph& graph);

// Puts the meta device in place of every device that an operator of the graph is given, or leaves
// to its default, and meta tensors in place of the graph's constants, except for single numbers.
void put_on_meta(torch::jit::Graph& graph);
// Does so for the device among the operands of one operator.
void put_on_meta(const torch::jit::Node& node, torch::jit::Stack& operands);

}  // namespace aten_recompute
