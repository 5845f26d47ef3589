#include "planner/graph/segments.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <utility>

namespace aten_recompute {
namespace {

// Joins neighbors so that no joint segment saves more than `limit` bytes. Returns the choice with
// the smallest kept separators, or, with `fewest`, the one with the fewest segments and then the
// smallest separators. It is a shortest path over the cuts, with a sliding window over the places
// where the last segment may begin.
std::vector<bool> join_up_to(const std::vector<Segment>& segments, int64_t limit, bool fewest) {
  const size_t count = segments.size();
  std::vector<int64_t> saved_before(count + 1, 0);
  // costs[i] is the cost of the first i segments with the separator at their end: bytes and number
  // of segments, or with `fewest` the other way around.
  std::vector<std::pair<int64_t, int64_t>> costs(count + 1);
  std::vector<size_t> last_begin(count + 1, 0);
  std::deque<size_t> window;  // candidates for last_begin, by growing cost
  for (size_t i = 1; i <= count; ++i) {
    saved_before[i] = saved_before[i - 1] + segments[i - 1].saved_bytes;
    while (!window.empty() && costs[window.back()] > costs[i - 1])
      window.pop_back();
    window.push_back(i - 1);
    while (saved_before[i] - saved_before[window.front()] > limit)
      window.pop_front();
    last_begin[i] = window.front();
    const int64_t bytes = i == count ? 0 : segments[i - 1].separator_bytes;
    const auto& [first, second] = costs[window.front()];
    costs[i] = fewest ? std::pair(first + 1, second + bytes) : std::pair(first + bytes, second + 1);
  }
  std::vector<bool> keep(count, false);
  for (size_t i = last_begin[count]; i > 0; i = last_begin[i])
    keep[i - 1] = true;
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
    if (!keep[i])
      continue;
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
  if (segments.empty())
    return {};
  // The best maximum is the size of some range of segments, so these sizes are all limits to try.
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
  // No choice makes the maximum smaller than the largest segment. Smaller limits would only keep
  // more separators.
  const auto largest = std::max_element(
      segments.begin(), segments.end(),
      [](const Segment& a, const Segment& b) { return a.saved_bytes < b.saved_bytes; });
  limits.erase(limits.begin(),
               std::lower_bound(limits.begin(), limits.end(), largest->saved_bytes));

  std::vector<bool> best(segments.size(), false);
  int64_t best_bytes = std::numeric_limits<int64_t>::max();
  for (auto limit : limits) {
    auto keep = join_up_to(segments, limit, /*fewest=*/count.has_value());
    const auto cost = cost_of(segments, keep);
    if (count && cost.segments > *count)
      continue;
    if (count)
      return keep;  // limits grow, so the first choice that fits has the smallest maximum
    if (cost.bytes < best_bytes) {
      best_bytes = cost.bytes;
      best = std::move(keep);
    }
  }
  return best;
}

}  // namespace aten_recompute
