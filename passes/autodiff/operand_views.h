// Views of operands that eager PyTorch makes where it rearranges them.
#pragma once

namespace torch::jit {
struct Block;
struct Graph;
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// Puts a view in front of each operand of those operators before `end` that read their operands
// through views in eager PyTorch (Rule::gradients_in_reverse, and the weight of a linear layer,
// which is transposed). Where their gradients are differentiated again, an operand gets several
// gradients from one operator, which the view adds up before they are added to those from
// elsewhere, as in eager PyTorch.
//
//   %y = aten::tensordot(%a, %b, ...)      ==>      %v = aten::alias[operand_view=1](%a)
//                                                   %w = aten::alias[operand_view=1](%b)
//                                                   %y = aten::tensordot(%v, %w, ...)
void insert_operand_views(torch::jit::Graph& graph, const torch::jit::Node* end);

// Removes these views, once gradients are added up.
void remove_operand_views(torch::jit::Block* block);

}  // namespace aten_recompute
