#include "passes/profile/measured_times.h"

#include <gtest/gtest.h>
#include <torch/csrc/jit/ir/ir.h>

#include <cstddef>
#include <memory>
#include <vector>

namespace aten_recompute {
namespace {

struct Measured {
  size_t measured_class;
  double seconds;
};

// Returns the seconds of each node after `times` has seen a profile with these nodes.
std::vector<double> reconciled(MeasuredTimes& times, const std::vector<Measured>& measured) {
  const auto graph = std::make_shared<torch::jit::Graph>();
  std::vector<const torch::jit::Node*> nodes;
  Profile profile;
  for (const auto& each : measured) {
    nodes.push_back(graph->appendNode(graph->create(c10::Symbol::aten("relu"))));
    auto& cost = profile.nodes[nodes.back()];
    cost.measured_class = each.measured_class;
    cost.seconds = each.seconds;
  }
  times.reconcile(profile);
  std::vector<double> seconds;
  for (const auto* node : nodes)
    seconds.push_back(profile.nodes.at(node).seconds);
  return seconds;
}

TEST(MeasuredTimes, TheFirstProfileIsAsItWasMeasured) {
  MeasuredTimes times;
  EXPECT_EQ(reconciled(times, {{1, 2.0}, {2, 3.0}, {1, 2.0}}), (std::vector<double>{2, 3, 2}));
}

TEST(MeasuredTimes, ASlowerProfileIsScaledByTheOperatorsThatBothHave) {
  MeasuredTimes times;
  reconciled(times, {{1, 2.0}, {2, 3.0}});
  EXPECT_EQ(reconciled(times, {{1, 4.0}, {2, 6.0}, {3, 10.0}}), (std::vector<double>{2, 3, 5}));
  EXPECT_EQ(reconciled(times, {{3, 20.0}, {4, 8.0}}), (std::vector<double>{5, 2}))
      << "what the second profile was scaled to is known in the third";
}

TEST(MeasuredTimes, OneDisturbedOperatorDoesNotChangeThePace) {
  MeasuredTimes times;
  reconciled(times, {{1, 2.0}, {2, 2.0}, {3, 2.0}});
  EXPECT_EQ(reconciled(times, {{1, 2.0}, {2, 90.0}, {3, 2.0}, {4, 1.0}}),
            (std::vector<double>{2, 2, 2, 1}));
}

TEST(MeasuredTimes, FewKnownOperatorsSayNothing) {
  MeasuredTimes times;
  reconciled(times, {{1, 0.5}});
  EXPECT_EQ(reconciled(times, {{1, 1.0}, {2, 99.0}}), (std::vector<double>{0.5, 99}));
}

TEST(MeasuredTimes, ComputedSecondsStay) {
  MeasuredTimes times;
  reconciled(times, {{1, 2.0}, {0, 7.0}});
  EXPECT_EQ(reconciled(times, {{1, 4.0}, {0, 9.0}}), (std::vector<double>{2, 9}));
}

}  // namespace
}  // namespace aten_recompute
