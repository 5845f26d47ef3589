// Replaces lists that a method fills step by step by lists that are made at once.
#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Replaces each change of a list by a new list with the elements after the change:
//
//   xs = [a]                     xs = [a]
//   b = cat(xs)                  b = cat(xs)
//   xs.append(b)         ==>     xs' = [a, b]
//   c = cat(xs)                  c = cat(xs')
//
// This needs a list that a prim::ListConstruct of the same block makes, and that operators before
// the change only read, without passing on the list itself. Uses after the change do not matter:
// all of them, also in nested blocks, become uses of the new list. Changes are append, extend, +=,
// insert, pop, del and assignment of an element (at constant positions), reverse and clear.
//
// Dead code elimination removes the lists that nothing reads any more.
void functionalize_lists(const std::shared_ptr<torch::jit::Graph>& graph);

// Returns whether the graph reads a tensor from a list that it puts together, by an index that is
// not constant. functionalize_lists() has no answer to that.
bool reads_own_lists(torch::jit::Graph& graph);

}  // namespace aten_recompute
