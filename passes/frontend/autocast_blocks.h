// `with torch.autocast(...)` written in a method.
#pragma once

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// TorchScript's interpreter does nothing where such a block is entered; LibTorch has a pass that
// inserts casts in its place, by lists of its own. Here entering and leaving become operators that
// do what the Python classes do (backend/autocast.h), so that the dispatcher casts as in eager.
//
//   %a = prim::CreateObject()               %a = prim::CreateObject()
//   prim::SetAttr[name="_enabled"](%a, %e)  prim::SetAttr[name="_enabled"](%a, %e)
//   ...                               ==>   ...
//   %b = prim::Enter(%a)                    aten_recompute::enter_autocast(%device, %e, %dtype)
//   %y = aten::linear(%x, %w)               %y = aten::linear(%x, %w)
//   %c = prim::Exit(%a)                     aten_recompute::exit_autocast()
//
// Both operators end regions, and what lies between them runs under ordinary autograd.
// Needs: inline_modules() has run.
void autocast_blocks(torch::jit::Graph& graph);

}  // namespace aten_recompute
