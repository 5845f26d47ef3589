#include "planner/search/equivalence_classes.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using test::SmallProblemBuilder;

struct Layers {
  Problem problem;
  std::vector<int32_t> wide;  // of each layer
  std::vector<int32_t> narrow;
};

// Layers that compute a wide value from their input and a narrow one from that. Each layer's values
// have `grown` bytes more than those of the layer before.
Layers layers(int count, int64_t grown) {
  SmallProblemBuilder b;
  Layers made;
  auto value = b.held("x", 1000);
  for (int i = 0; i < count; ++i) {
    made.wide.push_back(b.fresh("w" + std::to_string(i), {value}, 40 + i * grown));
    value = b.fresh("n" + std::to_string(i), {made.wide.back()}, 10 + i * grown);
    made.narrow.push_back(value);
  }
  b.result(value);
  b.start_backward();
  auto gradient = b.incoming("dy", 10);
  for (int i = count; i-- > 0;)
    gradient = b.fresh("g" + std::to_string(i), {gradient, made.wide[i]}, 10);
  b.result(gradient);
  made.problem = b.build();
  return made;
}

TEST(EquivalenceClasses, EqualLayersAreInOneClass) {
  const auto [problem, wide, narrow] = layers(20, 0);
  const auto classes = classes_of(problem);
  EXPECT_EQ(classes.of_value[wide[8]], classes.of_value[wide[12]]);
  EXPECT_EQ(classes.of_value[narrow[8]], classes.of_value[narrow[12]]);
  EXPECT_NE(classes.of_value[wide[8]], classes.of_value[narrow[8]]);
  EXPECT_EQ(classes.of_node[problem.producer[wide[8]]],
            classes.of_node[problem.producer[wide[12]]]);
}

TEST(EquivalenceClasses, SizesTellLayersApart) {
  const auto [problem, wide, narrow] = layers(20, 1);
  const auto classes = classes_of(problem);
  EXPECT_NE(classes.of_value[wide[8]], classes.of_value[wide[12]]);
}

TEST(EquivalenceClasses, TheEndsOfANetworkAreInClassesOfTheirOwn) {
  const auto [problem, wide, narrow] = layers(20, 0);
  const auto classes = classes_of(problem);
  EXPECT_NE(classes.of_value[narrow[19]], classes.of_value[narrow[12]]);
}

// The layers of a DenseNet all differ in size, and the search still has to decide about few
// classes.
TEST(EquivalenceClasses, SizesAreIgnoredWhereThereAreVeryManyLayers) {
  const auto [problem, wide, narrow] = layers(1000, 1);
  const auto classes = classes_of(problem);
  EXPECT_EQ(classes.of_value[wide[300]], classes.of_value[wide[700]]);
  EXPECT_NE(classes.of_value[wide[300]], classes.of_value[narrow[300]]);
}

}  // namespace
}  // namespace aten_recompute
