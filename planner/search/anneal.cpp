// The simulated annealing of LocalSearch.
#include <algorithm>
#include <cmath>

#include "planner/search/local_search.h"

namespace aten_recompute {

// Draws a few moves at random, or all or some moves of a random group.
std::vector<Move> LocalSearch::draw(std::span<const Move> candidates) {
  std::vector<Move> drawn;
  if (random_.below(2) == 0) {
    for (size_t count = 1 + random_.below(3); count > 0; --count)
      drawn.push_back(candidates[random_.below(candidates.size())]);
    return drawn;
  }
  const auto group = candidates[random_.below(candidates.size())].group;
  for (const auto& move : candidates) {
    if (move.group == group)
      drawn.push_back(move);
  }
  std::sort(drawn.begin(), drawn.end(),
            [](const Move& a, const Move& b) { return a.key() < b.key(); });
  const auto size = drawn.size();
  switch (random_.below(4)) {
    case 0:  // the first
      drawn.resize(1 + random_.below(size));
      break;
    case 1:  // the last
      drawn.erase(drawn.begin(), drawn.begin() + static_cast<int64_t>(random_.below(size)));
      break;
    case 2: {  // every other one
      std::vector<Move> part;
      for (size_t i = random_.below(std::min<size_t>(2, size)); i < size; i += 2)
        part.push_back(drawn[i]);
      drawn = std::move(part);
      break;
    }
    default:
      break;
  }
  return drawn;
}

// Returns the price of excess in seconds per byte. Exceeding the limit must not save more time than
// a larger limit would. Otherwise annealing converges above the limit where plans are slow.
double LocalSearch::price_of_excess(const Plan& plan, int64_t limit_bytes) const {
  const auto limit = static_cast<double>(std::max<int64_t>(1, limit_bytes));
  // An excess of one percent in every hundredth slot costs as much as a hundredth of the step.
  const double least = 300.0 * seconds_per_node() / limit;
  constexpr double kMore = 0.1;
  const auto* other = archive_.fastest(limit_bytes + static_cast<int64_t>(kMore * limit));
  if (other == nullptr)
    return least;
  const double saved = plan.simulation.recompute_seconds - other->simulation.recompute_seconds;
  return std::max(least, saved / (kMore * limit));
}

void LocalSearch::anneal(const Plan& start, int64_t limit_bytes, int64_t steps) {
  const double hot = 3.0 * seconds_per_node();
  const double cold = hot / 1000.0;
  const double price = price_of_excess(start, limit_bytes);
  const auto energy = [&](const Simulation& s) { return s.recompute_seconds + price * s.excess; };

  auto current = start;
  allow_steps(kMaxStepsToImprove);
  current.simulation = simulate(current.retention, limit_bytes);
  auto candidates = moves_.candidates(last_run_of(current.retention), 0);
  const auto first = num_steps_;
  while (num_steps_ - first < steps && !candidates.empty()) {
    const double progress = static_cast<double>(num_steps_ - first) / static_cast<double>(steps);
    const double temperature = hot * std::pow(cold / hot, progress);
    const auto undo = apply_all(current.retention, draw(candidates));
    const auto tried = simulate(current.retention, limit_bytes);
    const double worse = energy(tried) - energy(current.simulation);
    if (worse <= 0.0 || random_.unit() < std::exp(-worse / temperature)) {
      current.simulation = tried;
      candidates = moves_.candidates(last_run_of(current.retention), 0);
    } else {
      apply_all(current.retention, undo);
    }
  }
}

}  // namespace aten_recompute
