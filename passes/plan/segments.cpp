#include "passes/plan/segments.h"

#include <algorithm>
#include <limits>

namespace aten_recompute {
namespace {

// Joins neighbours as long as a joint segment saves at most `limit` bytes.
std::vector<bool> join_up_to(const std::vector<Segment>& segments, int64_t limit) {
  std::vector<bool> keep(segments.size(), false);
  int64_t joined = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    if (i > 0 && joined + segments[i].saved_bytes > limit) {
      keep[i - 1] = true;
      joined = 0;
    }
    joined += segments[i].saved_bytes;
  }
  return keep;
}

struct Cost {
  int64_t bytes = 0;
  int64_t segments = 1;
};

Cost cost_of(const std::vector<Segment>& segments, const std::vector<bool>& keep) {
  Cost cost;
  int64_t joined = 0;
  int64_t largest = 0;
  for (size_t i = 0; i < segments.size(); ++i) {
    joined += segments[i].saved_bytes;
    largest = std::max(largest, joined);
    if (!keep[i]) continue;
    cost.bytes += segments[i].separator_bytes;
    ++cost.segments;
    joined = 0;
  }
  cost.bytes += largest;
  return cost;
}

}  // namespace

std::vector<bool> choose_separators(const std::vector<Segment>& segments,
                                    std::optional<int64_t> count) {
  if (segments.empty()) return {};
  // The best maximum is the size of some stretch of segments.
  std::vector<int64_t> limits;
  for (size_t i = 0; i < segments.size(); ++i) {
    int64_t joined = 0;
    for (size_t j = i; j < segments.size(); ++j) {
      joined += segments[j].saved_bytes;
      limits.push_back(joined);
    }
  }
  std::sort(limits.begin(), limits.end());
  limits.erase(std::unique(limits.begin(), limits.end()), limits.end());
  // No choice brings the maximum below the largest segment: smaller limits only keep more separators.
  const auto largest = std::max_element(
      segments.begin(), segments.end(),
      [](const Segment& a, const Segment& b) { return a.saved_bytes < b.saved_bytes; });
  limits.erase(limits.begin(),
               std::lower_bound(limits.begin(), limits.end(), largest->saved_bytes));

  std::vector<bool> best = join_up_to(segments, limits.back());
  int64_t best_bytes = std::numeric_limits<int64_t>::max();
  for (auto limit : limits) {
    auto keep = join_up_to(segments, limit);
    const auto cost = cost_of(segments, keep);
    if (count && cost.segments > *count) continue;
    if (count) return keep;  // limits grow: the first that fits has the smallest maximum
    if (cost.bytes < best_bytes) {
      best_bytes = cost.bytes;
      best = std::move(keep);
    }
  }
  return best;
}

}  // namespace aten_recompute
