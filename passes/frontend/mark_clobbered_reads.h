// Operators that cannot run again because what they read is written to in the meantime.
#pragma once

namespace torch::jit {
struct Graph;
}

namespace aten_recompute {

// Sets symbols::kReadsWritten on nodes of a method that read memory which a later node of the
// method writes to: a table that is updated once it has been looked at. What such a node makes is
// kept, as in eager; run again, it would read the new numbers. Views are left out: they are made
// again for what reads them, and those are marked.
//
// Two attributes are two tensors here, which LibTorch's alias analysis does not say: to it, a batch
// norm that counts its calls may write to any weight.
void mark_reads_of_what_is_written_later(torch::jit::Graph& graph);

}  // namespace aten_recompute
