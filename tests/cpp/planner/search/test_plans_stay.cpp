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

// Returns the search for plans of a problem in so many steps.
PlanSearch searched(const Problem& problem, int64_t steps) {
  return PlanSearch(
      problem, RetentionPlan(problem),
      {.steps_per_second = 0.0, .least_steps = steps, .most_steps = steps, .simulations = steps});
}

// "SMALLEST PEAK: SECONDS ..." under 90, 80, ..., 10 per cent of the peak without recomputation. A
// search of few steps ends before the best plans, so that each of its parts shows in what it finds.
std::string frontier_of(const Problem& problem, int64_t steps) {
  const auto peak = Simulator(problem).run(RetentionPlan(problem)).peak_bytes;
  auto search = searched(problem, steps);
  std::ostringstream text;
  text << search.smallest_peak_bytes() << ':';
  for (int64_t share = 90; share > 0; share -= 10) {
    if (const auto plan = search.fastest(peak * share / 100))
      text << ' ' << plan->simulation.recompute_seconds;
  }
  return text.str();
}

TEST(Search, FindsThePlansThatAreRecordedInFewSteps) {
  const std::vector<Recorded> recorded{
      {"chain of 90", test::chain(90, 3), "66: 6 19 42 75 117 166 223 299 748"},
      {"chain of 200", test::chain(200, 4), "73: 15 41 78 133 206 296 399 822 908"},
      {"chain of 400", test::chain(400, 5), "545: 187 433 601 601 763 1146 1294 1648"},
      {"ladder of 64", test::ladder(64), "702: 38 125 266 458 692 1016 1377 1809 3368"},
      {"40 residuals", test::residuals(40, 3), "855: 21 50 85 150 231 394 671 863 1976"},
      {"80 residuals", test::residuals(80, 4), "1125: 40 95 174 314 32671 32671 32671 32671 32671"},
  };
  for (const auto& [name, problem, plans] : recorded)
    EXPECT_EQ(frontier_of(problem, 150'000), plans) << name;
}

// Seconds under the smallest peak and under peaks that are larger by 5, 10, ..., 50 per cent.
// There, the search for other checkpoints, which comes last, finds faster plans in these problems.
TEST(Search, FindsThePlansOfSmallPeaksThatAreRecorded) {
  const std::vector<Recorded> recorded{
      {"chain of 60", test::chain(60, 1), "1988 1656 885 616 606 493 475 456 445 445 388"},
      {"another chain of 60", test::chain(60, 2), "5127 1341 943 611 472 393 289 268 265 265 258"},
      {"chain of 100", test::chain(100, 1), "23122 1278 1278 1112 985 865 652 652 637 633 541"},
      {"ladder of 50", test::ladder(50),
       "132082 11125 11099 7553 6679 6038 5672 5672 4731 4409 4359"},
      {"30 residuals", test::residuals(30, 6),
       "10218 6432 2145 1887 1697 1697 1228 1211 1160 1131 1024"},
  };
  for (const auto& [name, problem, plans] : recorded) {
    auto search = searched(problem, 100'000);
    const auto smallest = search.smallest_peak_bytes();
    std::ostringstream text;
    for (int64_t share = 100; share <= 150; share += 5)
      text << (share > 100 ? " " : "")
           << search.fastest(smallest * share / 100)->simulation.recompute_seconds;
    EXPECT_EQ(text.str(), plans) << name;
  }
}

}  // namespace
}  // namespace aten_recompute
