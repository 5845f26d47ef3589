// The memory of one step, block by block: what is alive from which operator to which. It is what
// the simulator counts, taken apart for pictures, traces and reports.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/model/problem.h"
#include "planner/model/simulator.h"

namespace aten_recompute {

// What runs at one place of a step.
enum class StepKind : uint8_t {
  kForward,
  kRecomputed,  // an operator of the forward that runs again
  kBackward,
  kLoss,  // the caller's loss, between forward and backward
};

// Returns, per step of a schedule, what kind it is. There is no kLoss among them.
std::vector<StepKind> step_kinds(const Problem& problem, const std::vector<Step>& steps);

enum class BlockKind : uint8_t {
  kKept,        // made by the forward and kept into the backward
  kDropped,     // made by the forward, freed before the loss, and made again later
  kTemporary,   // made by the forward and read by the forward alone
  kRecomputed,  // made again for a node that is served
  kBackward,    // made by the backward: gradients, and what leads to them
  kGiven,       // made outside: by operators between regions, by the loss, or by other calls and
                // backwards
  kWorkspace,   // what an operator allocates beside its results, results that nothing reads, and
                // random states that are kept
  kLoss,        // what the caller's loss allocates
};

struct MemoryBlock {
  int32_t value = -1;  // of the problem; -1: the block is no value, but belongs to a node
  int32_t node = -1;   // that made it; -1: none of the problem
  int64_t bytes = 0;
  int32_t begin = 0;  // alive in the steps [begin, end)
  int32_t end = 0;
  BlockKind kind = BlockKind::kTemporary;
};

// One step of training, as it is simulated.
struct StepMemoryWalk {
  struct Moment {
    int32_t node = -1;  // that runs; -1: the loss
    StepKind kind = StepKind::kForward;
    int64_t bytes = 0;  // alive while it runs: the sum of the blocks
    double seconds = 0.0;
  };
  std::vector<Moment> moments;      // those of the schedule, and the loss between them
  std::vector<MemoryBlock> blocks;  // by rising `begin`
  Simulation simulation;
};

// Simulates a plan and returns what is alive when. The largest of Moment::bytes is the peak that
// Simulator::run() returns, and each of them is its step_bytes(); there, the loss counts with the
// last step of the forward.
StepMemoryWalk walk_step(const Problem& problem, const RetentionPlan& plan);

}  // namespace aten_recompute
