// Places in one arena for blocks of memory whose sizes and lifetimes are known.
//
// No arena can be smaller than the bytes that are alive at the same time. How near to that one can
// come is a bin packing problem in two dimensions, time and address (XLA's buffer assignment, OLLA,
// TelaMalloc). Here, blocks are placed one after the other where they fit best, and the order in
// which they are placed is improved by local search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace aten_recompute {

// A block that is in use from step `begin` up to, and not including, step `end`.
struct Block {
  int64_t bytes = 0;
  int32_t begin = 0;
  int32_t end = 0;
};

struct Placement {
  std::vector<int64_t>
      offsets;  // bytes, one per block; those alive at the same time do not overlap
  int64_t arena_bytes = 0;
};

struct PlacementOptions {
  int64_t alignment = 64;   // bytes: offsets are multiples of it
  size_t max_tries = 3000;  // orders that are tried; fewer if one reaches the lower bound
};

// Returns the bytes of the blocks that are alive at the same time, at most, each rounded up to the
// alignment: the smallest arena that could do.
int64_t most_alive_bytes(std::span<const Block> blocks, int64_t alignment);

// A search for a small arena that can be continued later, so that a caller can run with a first
// placement and spend a little time now and then on a better one. Equal calls give equal results.
class PlacementSearch {
 public:
  // Places the blocks in some orders that do well by themselves. Throws std::invalid_argument for a
  // block of negative size or that ends before it begins, and for an alignment that is not
  // positive.
  PlacementSearch(std::span<const Block> blocks, int64_t alignment);
  ~PlacementSearch();
  PlacementSearch(PlacementSearch&&) noexcept;
  PlacementSearch& operator=(PlacementSearch&&) noexcept;

  // Tries so many other orders, unless the placement is as small as can be.
  void improve(size_t tries);
  // Returns the smallest arena that was found, in bytes. It counts large blocks only: small ones
  // lie between them, and may add a thousandth to it.
  int64_t arena_bytes() const;
  // Returns most_alive_bytes().
  int64_t bound() const;
  // Returns the placement of all blocks in the smallest arena that was found.
  Placement placement() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Returns offsets for the blocks. Equal arguments give equal placements. Throws as PlacementSearch
// does.
Placement place_blocks(std::span<const Block> blocks, const PlacementOptions& options = {});

}  // namespace aten_recompute
