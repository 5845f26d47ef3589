// How much longer the first run of an operator takes than those after it.
#pragma once

#include <cstddef>
#include <string>
#include <unordered_map>
#include <vector>

namespace aten_recompute {

// The first run with some sizes also loads code and fills caches. Running each a second time would
// double what a profile takes; but how much it is depends on the operator more than on the sizes
// (of DenseNet-121's 139 convolution backwards the median takes 1.24 times as long as the second,
// nine of ten at most 1.45 times), and is known after some of one operator.
class WarmUp {
 public:
  // Whether enough of this operator have run twice.
  bool is_known(const std::string& name) const;

  // Of a long first run, what the next would take; `name` is known.
  double without(const std::string& name, double first_seconds) const;

  // One more that ran twice.
  void learn(const std::string& name, double first_seconds, double second_seconds);

 private:
  std::unordered_map<std::string, std::vector<double>> ratios_;  // of second to first, sorted
};

}  // namespace aten_recompute
