// Lists that the method fills step by step become lists that are made at once.
#pragma once

#include <memory>

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Replaces a change of a list by a new list of what it then holds:
//
//   xs = [a]                     xs = [a]
//   b = cat(xs)                  b = cat(xs)
//   xs.append(b)         ==>     xs' = [a, b]
//   c = cat(xs)                  c = cat(xs')
//
// where the list was made by a prim::ListConstruct of the same block and, before the change, was
// only read by operators that cannot hand the list itself on. What happens to it afterwards does
// not matter: every later use, in nested blocks too, means the new list. Changes: append, extend,
// +=, insert, pop, del and assignment of an element (at constant positions), reverse, clear.
//
// Lists that are no longer read are left for dead code elimination.
void functionalize_lists(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace aten_recompute
