// What is in memory at the peak of a step, as indices and bytes.
#pragma once

#include <cstdint>

namespace aten_recompute {

// The first four byte counts add up to the peak.
struct PeakStep {
  int32_t step = -1;     // of the schedule; -1: it has none
  int32_t node = -1;     // that runs in this step
  bool at_loss = false;  // the peak comes after it, while the caller's loss runs
  // Memory that the node reads, the caller's excepted; at the loss, that of the outputs.
  int64_t operand_bytes = 0;
  int64_t result_bytes = 0;     // of its outputs, beyond what lies in the memory of operands
  int64_t workspace_bytes = 0;  // what it needs besides; at the loss, what the loss needs
  int64_t other_bytes = 0;      // everything else that is alive

  // Parts of other_bytes.
  int64_t gradient_bytes = 0;  // results of the backward that exist already
  // During the backward: results of the forward that are alive for the caller alone.
  int64_t output_bytes = 0;

  // What every plan needs that runs this node: the node's share of the peak, less the memory of an
  // operand that its first output can take over.
  int64_t alone_bytes = 0;
};

}  // namespace aten_recompute
