#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/search/search.h"
#include "tests/cpp/support/search_problems.h"

namespace aten_recompute {
namespace {

// The plans of some problems, so that a change by which the search finds others is noticed. Whoever
// changes the search on purpose compares the new figures with these: less time under a peak, or a
// smaller peak, is better. "BYTES/SECONDS" are peak and time of recomputation of the fastest plans
// under 80, 65, 50, and 35 per cent of the peak without recomputation, and of the smallest peak.
struct Recorded {
  std::string name;
  Problem problem;
  std::string plans;
};

std::string plans_of(const Problem& problem) {
  const RetentionPlan unplanned(problem);
  const auto peak = Simulator(problem).run(unplanned).peak_bytes;
  PlanSearch search(problem, unplanned);
  std::ostringstream text;
  const auto smallest = search.smallest_peak_bytes();
  for (const int64_t bytes :
       {peak * 80 / 100, peak * 65 / 100, peak / 2, peak * 35 / 100, smallest}) {
    const auto plan = search.fastest(bytes);
    text << (text.tellp() > 0 ? " " : "");
    if (plan)
      text << plan->simulation.peak_bytes << '/' << plan->simulation.recompute_seconds;
    else
      text << "none";
  }
  return text.str();
}

TEST(Search, FindsThePlansThatAreRecorded) {
  const std::vector<Recorded> recorded{
      {"chain of 24", test::chain(24, 1), "213/5 168/15 132/27 92/56 63/176"},
      {"chain of 60", test::chain(60, 2), "477/11 388/30 297/60 209/105 72/4992"},
      {"chain of 150", test::chain(150, 7), "1248/30 1016/79 781/148 546/248 74/42772"},
      {"ladder of 12", test::ladder(12), "1775/32 1417/89 1091/180 763/388 586/1024"},
      {"ladder of 40", test::ladder(40), "6819/123 5527/286 4285/510 2977/856 701/52648"},
      {"9 residuals", test::residuals(9, 1), "1753/17 1412/67 1093/119 762/198 529/516"},
      {"24 residuals", test::residuals(24, 2), "4212/30 3414/96 2609/217 1831/399 674/13649"},
  };
  for (const auto& [name, problem, plans] : recorded)
    EXPECT_EQ(plans_of(problem), plans) << name;
}

}  // namespace
}  // namespace aten_recompute
