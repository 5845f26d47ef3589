// The trade-off of peak and time as a picture.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace aten_recompute::command {

// A plan, as a point of the picture.
struct PlanPoint {
  int64_t peak_bytes = 0;
  double seconds = 0.0;
  std::string name;  // "budget 0.5"; "" for a plan of the curve
};

struct Tradeoff {
  std::string title;
  std::vector<PlanPoint> curve;  // by falling peak and rising time; at least one
  std::vector<PlanPoint> marks;  // plans with names
  PlanPoint unplanned;           // nothing is recomputed
};

// Returns an SVG document: peaks from left to right, times upwards as multiples of that without
// recomputation, or in seconds where that is 0. It needs nothing from elsewhere but a font, and is
// dark where the reader's colors are.
std::string tradeoff_svg(const Tradeoff& tradeoff);

}  // namespace aten_recompute::command
