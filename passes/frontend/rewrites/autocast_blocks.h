// Makes `with torch.autocast(...)` in a method work as in eager PyTorch.
#pragma once

namespace c10 {
struct FunctionSchema;
}

namespace torch::jit {
struct Graph;
struct Node;
}  // namespace torch::jit

namespace aten_recompute {

// Replaces entering and leaving such blocks by operators that do what the Python classes do
// (runtime/autocast.h), so that the dispatcher casts as in eager PyTorch. TorchScript's interpreter
// ignores the blocks; LibTorch's own pass inserts casts instead, by lists of its own.
//
//   %a = prim::CreateObject()
//   prim::SetAttr[name="_enabled"](%a, %e)
//   ...                          ==>
//   %b = prim::Enter(%a)              aten_recompute::enter_autocast(%device, %e, %dtype, %cache)
//   %y = aten::linear(%x, %w)         %y = aten::linear(%x, %w)
//   %c = prim::Exit(%a)               aten_recompute::exit_autocast()
//
// On a recorded path that becomes one region, the blocks are part of it (insert_casts.h). Otherwise
// both operators end regions. Needs inline_modules() to have run.
void autocast_blocks(torch::jit::Graph& graph);

// Keeps the argument `cache_enabled` of a call that initializes a torch.autocast, for
// autocast_blocks(): compiled by TorchScript, the class forgets it. `schema` is that of the
// function that is called. Does nothing at other calls. Needs to run before the call is inlined.
void keep_cache_enabled(torch::jit::Node* call, const c10::FunctionSchema& schema);

}  // namespace aten_recompute
