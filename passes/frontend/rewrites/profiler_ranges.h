// Removes the ranges that a method names for PyTorch's profiler.
#pragma once

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Removes `with torch.profiler.record_function(name):` blocks and keeps what stands in them. What a
// region computes again runs in its backward, outside of any range of the forward, and a block
// would end a region.
//
//   %a = prim::CreateObject()
//   prim::SetAttr[name="name"](%a, %name)
//   ...                                        ==>   %y = aten::linear(%x, %w)
//   %b = prim::Enter(%a)
//   %y = aten::linear(%x, %w)
//   %c = prim::Exit(%a)
//
// Needs inline_modules() to have run.
void remove_profiler_ranges(torch::jit::Graph& graph);

}  // namespace aten_recompute
