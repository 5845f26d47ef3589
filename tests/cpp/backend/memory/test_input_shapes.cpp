#include "backend/memory/input_shapes.h"

#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

namespace aten_recompute {
namespace {

InputShapes shapes(std::vector<std::vector<int64_t>> sizes, at::ScalarType type = at::kFloat) {
  std::vector<c10::IValue> inputs;
  for (const auto& each : sizes)
    inputs.emplace_back(at::zeros(each, type));
  return InputShapes(inputs);
}

TEST(InputShapes, CoverShapesThatAreAtMostAsLargeInEveryDimension) {
  const auto made_for = shapes({{4, 8}, {3}});
  EXPECT_TRUE(made_for.cover(made_for));
  EXPECT_TRUE(made_for.cover(shapes({{4, 7}, {1}})));
  EXPECT_FALSE(made_for.cover(shapes({{5, 1}, {3}})));
  EXPECT_FALSE(made_for.cover(shapes({{4, 8}, {4}})));
}

TEST(InputShapes, RanksAndNumbersOfInputsMustAgree) {
  EXPECT_FALSE(shapes({{4, 8}}).cover(shapes({{4}})));
  EXPECT_FALSE(shapes({{4}}).cover(shapes({{4}, {4}})));
  EXPECT_FALSE(shapes({{4}, {4}}).cover(shapes({{4}})));
}

TEST(InputShapes, WiderElementsAreLarger) {
  EXPECT_TRUE(shapes({{4}}, at::kDouble).cover(shapes({{4}}, at::kFloat)));
  EXPECT_FALSE(shapes({{4}}, at::kFloat).cover(shapes({{4}}, at::kDouble)));
}

TEST(InputShapes, NumbersThatDecideSizesCountAsLengths) {
  const auto of = [](const c10::IValue& number) {
    return InputShapes({number}, /*ignored=*/{true}, /*decides_sizes=*/{true});
  };
  EXPECT_TRUE(of(4).cover(of(3)));
  EXPECT_FALSE(of(4).cover(of(5)));
  EXPECT_FALSE(of(1.5).cover(of(2.5)));
  EXPECT_TRUE(of(4).with_room(8).cover(of(8)));
  EXPECT_TRUE(InputShapes({c10::IValue(4)}).cover(InputShapes({c10::IValue(5)})));
}

TEST(InputShapes, ScalarTensorsAndUndefinedOnesHaveNoSizes) {
  EXPECT_TRUE(shapes({{}}).cover(shapes({{}})));
  const std::vector<c10::IValue> undefined{at::Tensor(), c10::IValue(3), c10::IValue()};
  EXPECT_TRUE(InputShapes(undefined).cover(InputShapes(undefined)));
  EXPECT_FALSE(shapes({{}}).cover(InputShapes({at::Tensor()})));
}

TEST(InputShapes, IgnoredInputsAreLeftOut) {
  const std::vector<c10::IValue> a{at::zeros({2}), at::zeros({5})};
  const std::vector<c10::IValue> b{at::zeros({9}), at::zeros({5})};
  EXPECT_FALSE(InputShapes(a) == InputShapes(b));
  EXPECT_TRUE(InputShapes(a, {true, false}) == InputShapes(b, {true, false}));
}

}  // namespace
}  // namespace aten_recompute
