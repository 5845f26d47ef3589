// Regions whose profile is made up by the test.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "ir/joint_graph.h"
#include "passes/profile/profile.h"
#include "passes/strategy/graph_problem.h"

namespace aten_recompute::test {

// Bytes of values, 1000 for values that are not listed, and the base of each view.
struct Memory {
  std::map<std::string, int64_t> bytes;
  std::map<std::string, std::string> views;
};

struct ProfiledRegion {
  JointGraph joint;
  Profile profile;
  GraphProblem graph;
};

// h = mm(x, w), then `forward`. `backward` computes %d from %dy. The region returns `output`, by
// default a value that nothing else reads. Constants are %none, %false, %zero, %one and %half.
ProfiledRegion region(const std::string& forward, const std::string& backward, const Memory& memory,
                      const std::string& output = "out");

}  // namespace aten_recompute::test
