// Marks operators that cannot run again because memory that they read is written to later.
#pragma once

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Sets symbols::kReadsWritten on each node of a method that reads memory which a later node of the
// method writes to, such as a table that is updated after a look-up. Run again, the node would read
// the new values, so its results are kept, as in eager PyTorch. Views are not marked: they may be
// made again, because the nodes that read them are marked.
//
// Two attributes count as two tensors. LibTorch's alias analysis does not assume that: according to
// it, a batch norm that counts its calls may write to any weight.
void mark_clobbered_reads(torch::jit::Graph& graph);

}  // namespace aten_recompute
