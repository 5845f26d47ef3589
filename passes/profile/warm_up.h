// Learns how much longer the first run of an operator takes than later runs.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

namespace aten_recompute {

// The first run with some sizes also loads code and fills caches. Running each operator twice would
// double the time of a profile. But the ratio of the two runs depends on the operator more than on
// the sizes, so some samples per operator are enough: the first runs of DenseNet-121's 139
// convolution backwards take 1.24 times as long as the second in the median, and nine of ten take
// at most 1.45 times as long.
class WarmUp {
 public:
  // Whether enough runs of this operator have been repeated.
  bool is_known(const std::string& name) const;

  // Returns the seconds that the next run would take. `name` must be known.
  double without(const std::string& name, double first_seconds) const;

  // Adds a sample.
  void learn(const std::string& name, double first_seconds, double second_seconds);

 private:
  std::unordered_map<std::string, std::vector<double>> ratios_;  // second / first run, ascending
};

}  // namespace aten_recompute
