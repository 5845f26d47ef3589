// Leaves that a method makes with requires_grad_() and hands to its caller.
#pragma once

#include <cstdint>

namespace torch::jit {
struct Graph;
struct Node;
struct Value;
}  // namespace torch::jit

namespace aten_recompute {

// Makes a leaf of a path (symbols::kRequireGrad) before all regions (symbols::kBeforeRegions), with
// what it is made from: regions then take the tensor that the caller gets, as they take an input,
// and the gradient of what they compute from it goes there. The nodes are put before `start`.
// Returns whether it could: not where something else reads the tensor that becomes the leaf, or
// where operators compute it which have to be part of a region, draw random numbers or write.
bool make_leaf_before_regions(torch::jit::Value* leaf, torch::jit::Node* start);

// Has the caller get a leaf of a path that a region makes: a place for it
// (runtime/returned_leaf.h), put before `start`, is an operand of the node that marks it, and the
// leaf is made behind all that the path computes. `number` tells the leaves of a path apart.
// Returns whether it could: not where something reads a container that the path returns the leaf
// in, or where only views of it are returned.
bool return_leaf_of_region(torch::jit::Value* leaf, torch::jit::Node* start, int64_t number);

}  // namespace aten_recompute
