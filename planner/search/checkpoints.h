// Plans that keep checkpoints, drop them once they have served, and make others in their place,
// after rotor (Beaumont et al., "Optimal checkpointing for heterogeneous chains",
// arXiv:1911.13214). The simulator takes the place of rotor's memory model.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/model/retention_plan.h"
#include "planner/model/simulator.h"
#include "planner/search/cuts.h"

namespace aten_recompute {

// The forward is cut where little is alive, and the values alive at a cut are a checkpoint: in a
// chain of blocks the input of a block, in a network with long skip connections these as well.
// Between two cuts lies a part, and the backward goes through the parts one by one.
class Checkpoints {
 public:
  // `droppable`: the values to decide about. `problem` must outlive this object.
  Checkpoints(const Problem& problem, const std::vector<int32_t>& droppable);

  // Returns `inner` with all checkpoints kept for as long as they may be needed.
  RetentionPlan keep_all(const RetentionPlan& inner) const;

  // Returns the bytes that the backward of each part needs beside the checkpoints. `run`: a
  // simulation of keep_all(inner), where `inner` says what is recomputed within a part.
  std::vector<int64_t> needs(const SimulatedRun& run) const;

  // Returns `inner` with those checkpoints kept that make the backward fastest while they fit into
  // `limit_bytes` beside `needs`; nothing if they never fit. The values made on the way from one
  // checkpoint to another need memory as well, so the result has to be simulated.
  std::optional<RetentionPlan> schedule(const RetentionPlan& inner,
                                        const std::vector<int64_t>& needs,
                                        int64_t limit_bytes) const;

 private:
  // The forward between a cut and the next one, and its backward.
  struct Part {
    double seconds = 0.0;   // of the forward
    size_t begin_slot = 0;  // of the backward
    size_t end_slot = 0;
  };
  class Table;
  class Optimizer;

  void find_cuts();
  void find_parts();
  size_t part_of(int32_t node) const;
  int64_t bytes_beside(size_t cut, size_t kept) const;
  std::vector<std::vector<size_t>> kept_cuts(const std::vector<int64_t>& needs,
                                             int64_t limit_bytes) const;
  void keep_inner_value(int32_t value, const RetentionPlan& inner, RetentionPlan& plan) const;

  const Problem& problem_;
  std::vector<Cut> cuts_;  // the first one has no values, because inputs are always in memory
  std::vector<Part> parts_;
  std::vector<std::vector<int64_t>> beside_;    // [kept][cut]: bytes_beside(cut, kept)
  std::vector<int32_t> values_;                 // the values to decide about
  std::vector<std::vector<size_t>> cuts_with_;  // per value: the cuts at which it is alive
  std::vector<size_t> made_in_;                 // per value of values_: the part that makes it
};

}  // namespace aten_recompute
