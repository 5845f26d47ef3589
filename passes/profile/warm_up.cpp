#include "passes/profile/warm_up.h"

#include <algorithm>

namespace aten_recompute {

constexpr size_t kEnoughSamples = 5;

bool WarmUp::is_known(const std::string& name) const {
  const auto found = ratios_.find(name);
  return found != ratios_.end() && found->second.size() >= kEnoughSamples;
}

double WarmUp::without(const std::string& name, double first_seconds) const {
  const auto& ratios = ratios_.at(name);
  return first_seconds * ratios[ratios.size() / 2];
}

void WarmUp::learn(const std::string& name, double first_seconds, double second_seconds) {
  auto& ratios = ratios_[name];
  const auto ratio = first_seconds > 0.0 ? std::min(1.0, second_seconds / first_seconds) : 1.0;
  ratios.insert(std::upper_bound(ratios.begin(), ratios.end(), ratio), ratio);
}

}  // namespace aten_recompute
