// The timelines of a module (include/aten_recompute/timeline.h) as C++ structures, for what writes
// them in other formats.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace aten_recompute {

/// An operator that runs in a step, or the loss.
struct ChartMoment {
  std::string name, kind, layer, source;
  int64_t bytes = 0;     ///< alive while it runs
  double seconds = 0.0;  ///< 0 where times are not known
};

/// A piece of memory that is alive during the moments `begin` to `end - 1`.
struct ChartBlock {
  std::string name, kind, layer, source;
  int64_t bytes = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t offset = 0;  ///< its address within the memory of the step; -1 for what is not placed
};

/// One step: its operators in their order, and its memory.
struct ChartWalk {
  std::string title;  ///< "GPT.forward, as planned"
  std::vector<ChartMoment> moments;
  std::vector<ChartBlock> blocks;
  int64_t arena_bytes = 0;  ///< the addresses of `blocks` lie below it
  bool has_times = false;

  /// When each moment begins and when the last one ends, in microseconds. Without times, each takes
  /// one.
  std::vector<double> microseconds() const;
};

/// What the operators of one method allocate in the arena.
struct ChartArena {
  std::string title;
  std::vector<ChartBlock>
      blocks;  ///< those that are placed; `begin` and `end` count allocations and releases
  int64_t bytes = 0;
  int64_t num_moments = 0;
};

/// What is known of one method. Each step has two walks: as planned, and with nothing recomputed.
struct MethodChart {
  std::string name;
  std::vector<ChartWalk> walks;
  ChartArena arena;
};

/// Reads what timeline() returns; docs/report.md describes the format.
std::vector<MethodChart> method_charts(const nlohmann::json& timeline);

}  // namespace aten_recompute
