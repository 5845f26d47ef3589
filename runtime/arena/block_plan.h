// The record of what the operators of one step allocate, and the plan that says where each block
// lies in an arena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "planner/addresses/place_blocks.h"

namespace aten_recompute {

// Part of a step: pass 0 of a run is the forward of a region, pass k its k-th backward.
struct PassKey {
  size_t run = 0;  // in the order of the regions that the step runs
  size_t pass = 0;

  // The pass of what runs between the programs of regions: other operators of the method, and the
  // loss. It counts as one run more; its instructions are numbered by the programs before them.
  static constexpr PassKey between() { return {0, 0}; }
  bool is_between() const { return run == 0; }
  static constexpr PassKey of(size_t run, size_t pass) { return {run + 1, pass}; }
};

// Identifies an allocation of the step: it is the `ordinal`-th of an instruction.
struct BlockKey {
  PassKey pass;
  size_t instruction = 0;
  size_t ordinal = 0;
};

// Records what is allocated and freed in the course of one step. Thread-safe.
class StepRecord {
 public:
  struct Block {
    BlockKey key;
    int64_t bytes = 0;
    int32_t begin = 0;  // number of the event: an allocation or a release
    int32_t end = -1;   // -1: not freed before the step ended

    bool leaves() const { return end < 0; }
  };

  // Returns the index of the new block.
  size_t add(const BlockKey& key, int64_t bytes);
  // Notes that the block is freed. Has no effect once the step has ended.
  void end(size_t block);
  // Ends the step: what is not freed by now leaves it.
  void finish();
  bool is_finished() const;
  std::vector<Block> blocks() const;

 private:
  mutable std::mutex mutex_;
  std::vector<Block> blocks_;
  int32_t num_events_ = 0;
  bool is_finished_ = false;
};

// Places of the blocks of a step. The offsets never change; sizes that turned out larger than
// planned are noted for a later plan. Thread-safe.
class BlockPlan {
 public:
  struct Place {
    int64_t offset =
        -1;             // bytes from the beginning of the arena; -1: the block is not placed there
    int64_t bytes = 0;  // the largest block that fits
    size_t block = 0;   // index of the block in the record
  };

  // Makes a plan for the blocks of a record. Blocks that leave the step get no place.
  explicit BlockPlan(std::vector<StepRecord::Block> blocks);
  // Returns the bytes of these blocks that are alive at once, at most, of those that get a place.
  static int64_t alive_bytes(const std::vector<StepRecord::Block>& blocks);

  // Returns the place of a block; nullptr for one that was not recorded.
  const Place* find(const BlockKey& key) const;
  // Notes that a block of this place was larger than planned.
  void note_larger(const Place& place, int64_t bytes);
  // Returns a plan with space for the sizes that were noted; nullptr if there are none.
  std::shared_ptr<BlockPlan> enlarged() const;
  // Searches so many seconds for places in a smaller arena. Returns a plan with these if the arena
  // is smaller by enough to change places; nullptr otherwise. Must not run twice at once.
  std::shared_ptr<BlockPlan> improved(double seconds);

  int64_t arena_bytes() const { return arena_bytes_; }
  // The largest number of bytes that are alive at once, of those in the arena.
  int64_t alive_bytes() const { return alive_bytes_; }
  size_t num_blocks() const { return blocks_.size(); }

  struct PlacedBlock {
    StepRecord::Block block;
    int64_t offset = -1;  // as Place::offset
  };
  // Returns all blocks of the record with their places, sorted by key, for reports.
  std::vector<PlacedBlock> placed_blocks() const;

 private:
  BlockPlan(std::vector<StepRecord::Block> blocks, std::shared_ptr<PlacementSearch> search);
  // Returns the blocks that get places, as the search wants them.
  static std::vector<Block> to_place(const std::vector<StepRecord::Block>& blocks);
  void place();

  struct Pass {
    std::vector<size_t> first;  // per instruction, and one more: index into `places`
    std::vector<Place> places;
  };

  std::vector<StepRecord::Block> blocks_;  // sorted by key
  std::shared_ptr<PlacementSearch> search_;
  size_t num_tries_ = 0;
  std::vector<std::vector<Pass>> passes_;  // per run and pass
  int64_t arena_bytes_ = 0;
  int64_t alive_bytes_ = 0;
  mutable std::mutex mutex_;
  std::vector<int64_t> needed_;  // bytes per block, at least those of the record
  bool is_too_small_ = false;
};

}  // namespace aten_recompute
