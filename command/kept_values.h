// What a plan keeps for the backward and what it makes again, by value and layer.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "command/arguments.h"

namespace aten_recompute::command {

// A value of a region.
struct PlannedValue {
  std::string layer;  // "" where that is the root or not known
  int64_t bytes = 0;
  bool is_kept = false;  // alive between forward and backward
  bool is_recomputed = false;
};

// One region, or one of several runs of it.
struct PlannedRegion {
  std::string fingerprint;
  std::map<std::string, PlannedValue> values;  // by name; those that are kept or recomputed
};

// The plan of a file: a plan file, or a module.
struct PlanOfFile {
  std::string path;
  int64_t peak_bytes = 0;   // of a step
  int64_t saved_bytes = 0;  // between forward and backward
  double seconds = 0.0;     // of a step
  double recompute_seconds = 0.0;
  std::vector<PlannedRegion> regions;
};

// Returns the plan that a file names: a plan file has one, and a module the one that it was lowered
// with, or that of `arguments.inputs`, for which steps run. Throws Failure.
PlanOfFile plan_of_file(const std::string& path, const Arguments& arguments);

}  // namespace aten_recompute::command
