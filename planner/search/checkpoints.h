// Which values at the cuts of a network to keep while its backward runs, and when: checkpoints that
// are let go once they have served, and others that are made in their place. In the way of rotor
// (Beaumont et al., "Optimal checkpointing for heterogeneous chains", arXiv:1911.13214), with the
// simulator in place of a memory model.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/model/retention_plan.h"
#include "planner/model/simulator.h"

namespace aten_recompute {

// The forward is cut where little is alive, and what is alive at a cut is a checkpoint: of a chain
// of blocks, a block's input; of a network with long skips, these, too. Between two cuts lies a
// part, and the backward goes through the parts one by one.
class Checkpoints {
 public:
  // `droppable`: the values that are decided about. `problem` outlives it.
  Checkpoints(const Problem& problem, const std::vector<int32_t>& droppable);

  // `inner`, with all checkpoints kept for as long as they may be of use.
  RetentionPlan keep_all(const RetentionPlan& inner) const;

  // Bytes that the backward of each part needs beside checkpoints, where `inner` says what is
  // computed again within it. `simulator`: its last run was of keep_all(inner).
  std::vector<int64_t> needs(const Simulator& simulator) const;

  // `inner`, with the checkpoints kept that make the backward fastest, at each time no more than
  // fit into `limit_bytes` beside `needs`. Nothing where they never fit. What is made on the way
  // from one checkpoint to another comes on top, so the result has to be simulated.
  std::optional<RetentionPlan> schedule(const RetentionPlan& inner,
                                        const std::vector<int64_t>& needs,
                                        int64_t limit_bytes) const;

 private:
  struct Cut {
    int32_t after = -1;           // the last forward node before it
    std::vector<int32_t> values;  // alive there, and needed behind
  };
  // Between a cut and the next.
  struct Part {
    double seconds = 0.0;   // of its forward
    size_t begin_slot = 0;  // its backward's slots
    size_t end_slot = 0;
  };
  class Table;

  void find_cuts();
  void find_parts();
  size_t part_of(int32_t node) const;
  int64_t bytes_beside(size_t cut, size_t kept) const;
  std::vector<std::vector<size_t>> kept_cuts(const std::vector<int64_t>& needs,
                                             int64_t limit_bytes) const;

  const Problem& problem_;
  std::vector<Cut> cuts_;  // the first has no values: the inputs are there
  std::vector<Part> parts_;
  std::vector<std::vector<int64_t>> beside_;    // bytes_beside(second, first)
  std::vector<int32_t> values_;                 // that are decided about
  std::vector<std::vector<size_t>> cuts_with_;  // per value: where it is alive
  std::vector<size_t> made_in_;                 // per value of values_: the part that makes it
};

}  // namespace aten_recompute
