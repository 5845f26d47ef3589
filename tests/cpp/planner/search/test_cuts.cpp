#include "planner/search/cuts.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int64_t kWide = 4000;  // bytes
constexpr int64_t kNarrow = 1000;

// Each node reads the value before it. The values are numbered from 1; 0 is what the chain begins
// with.
Problem chain(const std::vector<int64_t>& bytes) {
  test::SmallProblemBuilder b;
  auto value = b.held("x", 100000);
  for (size_t i = 0; i < bytes.size(); ++i)
    value = b.fresh("v" + std::to_string(i + 1), {value}, bytes[i]);
  b.result(value);
  b.start_backward();
  b.result(b.fresh("gradient", {b.incoming("dy", 1)}, 1));
  return b.build();
}

std::vector<int32_t> values_from_1(const Problem& problem) {
  std::vector<int32_t> values;
  for (size_t node = 0; node < problem.num_forward; ++node)
    values.push_back(static_cast<int32_t>(node) + 1);
  return values;
}

std::vector<int32_t> nodes_before(const std::vector<Cut>& cuts) {
  std::vector<int32_t> nodes;
  for (const auto& cut : cuts)
    nodes.push_back(cut.after);
  return nodes;
}

TEST(Cuts, LieWhereLittleIsAliveBetweenWiderPlaces) {
  const auto problem = chain({kWide, kNarrow, kWide, kNarrow, kWide, kWide});
  const auto cuts = find_cuts(problem, values_from_1(problem), 0, problem.num_forward, 64);
  EXPECT_THAT(nodes_before(cuts), ElementsAre(1, 3));
  ASSERT_EQ(cuts.size(), 2U);
  EXPECT_THAT(cuts[0].values, ElementsAre(2));
  EXPECT_THAT(cuts[1].values, ElementsAre(4));
  EXPECT_THAT(values_at_cuts(problem, values_from_1(problem)), ElementsAre(2, 4));
}

TEST(Cuts, NoneIsBeforeTheFirstNodeOrWhereNothingRisesAgain) {
  for (const auto& bytes : {std::vector<int64_t>{kNarrow, kWide, kWide}, {kWide, kWide, kWide}}) {
    const auto problem = chain(bytes);
    EXPECT_THAT(find_cuts(problem, values_from_1(problem), 0, problem.num_forward, 64), IsEmpty());
  }
}

// A quarter more is the least that makes a valley.
TEST(Cuts, ShallowValleysAreNone) {
  const auto cuts_with = [](int64_t wide) {
    const auto problem = chain({wide, kNarrow, wide, wide});
    return find_cuts(problem, values_from_1(problem), 0, problem.num_forward, 64).size();
  };
  EXPECT_EQ(cuts_with(kNarrow + kNarrow / 4), 0U);
  EXPECT_EQ(cuts_with(kNarrow + kNarrow / 4 + 1), 1U);
}

TEST(Cuts, OfSeveralNeighborsTheLowestRemains) {
  const auto problem =
      chain({kWide, kNarrow, kWide, kNarrow / 2, kWide, kNarrow / 4, kWide, kNarrow, kWide, kWide});
  const auto values = values_from_1(problem);
  const auto most = [&](size_t count) {
    return nodes_before(find_cuts(problem, values, 0, problem.num_forward, count));
  };
  EXPECT_THAT(most(4), ElementsAre(1, 3, 5, 7));
  EXPECT_THAT(most(3), ElementsAre(3, 5));
  EXPECT_THAT(most(2), ElementsAre(3, 5));
  EXPECT_THAT(most(1), ElementsAre(5));
}

// What the nodes before make is not theirs, so that it lies at no cut of these.
TEST(Cuts, OnlyValuesOfTheNodesCount) {
  const auto problem = chain({kNarrow, kWide, kNarrow, kWide, kWide});
  const auto cuts = find_cuts(problem, values_from_1(problem), 1, problem.num_forward, 64);
  ASSERT_EQ(cuts.size(), 1U);
  EXPECT_EQ(cuts[0].after, 2);
  EXPECT_THAT(cuts[0].values, ElementsAre(3));
}

}  // namespace
}  // namespace aten_recompute
