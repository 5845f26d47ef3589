// Tables that the simulator reads: what a run of each node does to memory. They follow from the
// problem alone, so they are built once and serve all plans.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/model/problem.h"

namespace aten_recompute {

struct MemoryTables {
  explicit MemoryTables(const Problem& problem);

  // A range of one of the arrays below.
  struct Range {
    int32_t begin = 0;
    int32_t end = 0;
  };
  // Reads, outputs and overwrites are those of values that take memory.
  struct Node {
    double seconds = 0.0;
    int64_t workspace_bytes = 0;
    int64_t replay_bytes = 0;
    Range reads;
    Range outputs;
    Range overwrites;
    bool is_view = false;
  };
  struct Read {
    int32_t value = 0;
    int64_t own_bytes = 0;  // of the value
  };
  struct Output {
    int32_t value = 0;
    uint64_t output_mask = 0;  // its bit of Step::output_mask
    int64_t own_bytes = 0;     // of the value
  };
  // An input that has the size of output 0, where each has a single storage.
  struct Overwrite {
    int32_t value = 0;
    int32_t storage = 0;
    uint32_t reusable_operands = 0;  // its bit of Step::reusable_operands
    int64_t bytes = 0;
  };

  double base_seconds = 0.0;
  std::vector<Node> nodes;  // alternatives included
  std::vector<Read> reads;
  std::vector<Output> outputs;
  std::vector<Overwrite> overwrites;

  JaggedArray storages;  // per value: those that are not the caller's and have bytes
  // Per value: the bytes of its only storage, if no other value lies in it; otherwise -1. Such a
  // storage needs no count of the values that use it.
  std::vector<int64_t> own_bytes;

  std::vector<int32_t> forward_results;  // given values included
  std::vector<int32_t> backward_results;
  std::vector<uint8_t> is_freed_before_backward;  // per value

 private:
  void find_storages(const Problem& problem);
  void add_node(const Problem& problem, int32_t node);
};

}  // namespace aten_recompute
