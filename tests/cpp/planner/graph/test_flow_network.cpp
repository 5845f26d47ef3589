#include "planner/graph/flow_network.h"

#include <algorithm>
#include <limits>
#include <random>
#include <stdexcept>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

constexpr auto kSource = FlowNetwork::kSource;
constexpr auto kSink = FlowNetwork::kSink;

TEST(FlowNetwork, TheCheapestEdgeOfAChainIsCut) {
  FlowNetwork network;
  const auto a = network.add_vertex();
  const auto b = network.add_vertex();
  network.add_edge(kSource, a, 5);
  network.add_edge(a, b, 3);
  network.add_edge(b, kSink, 4);
  EXPECT_THAT(network.sink_side(), ElementsAre(false, true, false, true));
}

TEST(FlowNetwork, AmongMinimumCutsTheOneNearestToTheSinkIsTaken) {
  FlowNetwork network;
  const auto a = network.add_vertex();
  const auto b = network.add_vertex();
  network.add_edge(kSource, a, 3);
  network.add_edge(a, b, 3);
  network.add_edge(b, kSink, 3);
  EXPECT_THAT(network.sink_side(), ElementsAre(false, true, false, false));
}

TEST(FlowNetwork, UncuttableEdgesAndDeadEndsAreNotCut) {
  FlowNetwork network;
  const auto a = network.add_vertex();
  const auto b = network.add_vertex();
  const auto aside = network.add_vertex();
  network.add_uncuttable_edge(kSource, a);
  network.add_edge(a, b, 1000);
  network.add_uncuttable_edge(b, kSink);
  network.add_edge(a, aside, 1);
  EXPECT_THAT(network.sink_side(), ElementsAre(false, true, false, true, false));
}

TEST(FlowNetwork, APathOfUncuttableEdgesIsAnError) {
  FlowNetwork network;
  const auto a = network.add_vertex();
  network.add_edge(kSource, a, 7);
  network.add_uncuttable_edge(kSource, a);
  network.add_uncuttable_edge(a, kSink);
  EXPECT_THROW(network.sink_side(), std::logic_error);
}

// Compares with all 2^8 ways of dividing the vertices.
TEST(FlowNetwork, CutsAreMinimumOnRandomNetworks) {
  constexpr size_t kInner = 8;
  std::mt19937 random(1);
  for (int round = 0; round < 200; ++round) {
    FlowNetwork network;
    for (size_t i = 0; i < kInner; ++i)
      network.add_vertex();
    std::vector<std::vector<int64_t>> capacity(kInner + 2, std::vector<int64_t>(kInner + 2, 0));
    for (size_t from = 0; from < kInner + 2; ++from) {
      for (size_t to = 0; to < kInner + 2; ++to) {
        if (from == to || from == kSink || to == kSource || random() % 3 != 0)
          continue;
        capacity[from][to] = random() % 20;
        network.add_edge(from, to, capacity[from][to]);
      }
    }
    auto cost = [&](const std::vector<bool>& sink_side) {
      int64_t sum = 0;
      for (size_t from = 0; from < kInner + 2; ++from) {
        for (size_t to = 0; to < kInner + 2; ++to)
          sum += !sink_side[from] && sink_side[to] ? capacity[from][to] : 0;
      }
      return sum;
    };
    int64_t best = std::numeric_limits<int64_t>::max();
    int64_t fewest = 0;
    for (size_t mask = 0; mask < (size_t{1} << kInner); ++mask) {
      std::vector<bool> side{false, true};
      for (size_t i = 0; i < kInner; ++i)
        side.push_back((mask >> i) & 1);
      const auto count = std::count(side.begin(), side.end(), true);
      if (cost(side) < best || (cost(side) == best && count < fewest)) {
        best = cost(side);
        fewest = count;
      }
    }
    const auto found = network.sink_side();
    EXPECT_EQ(cost(found), best);
    EXPECT_EQ(std::count(found.begin(), found.end(), true), fewest);
  }
}

}  // namespace
}  // namespace aten_recompute
