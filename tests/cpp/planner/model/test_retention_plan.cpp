#include "planner/model/retention_plan.h"

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

// A chain of `length` forward nodes and as many backward nodes.
Problem chain(int length) {
  test::SmallProblemBuilder b;
  auto value = b.held("x", 100);
  std::vector<int32_t> values;
  for (int i = 0; i < length; ++i) {
    value = b.fresh("v" + std::to_string(i), {value}, 10);
    values.push_back(value);
  }
  b.start_backward();
  auto gradient = b.incoming("dy", 1);
  for (int i = length; i-- > 0;)
    gradient = b.fresh("g" + std::to_string(i), {gradient, values[i]}, 1);
  b.result(gradient);
  return b.build();
}

TEST(RetentionPlan, KeepsEverythingAtFirst) {
  const auto problem = chain(3);
  const RetentionPlan plan(problem);
  EXPECT_EQ(plan.num_slots(), 4U);  // the end of the forward, and of each backward node
  for (int32_t value = 0; value < static_cast<int32_t>(problem.num_values()); ++value) {
    for (size_t slot = 0; slot < plan.num_slots(); ++slot)
      EXPECT_FALSE(plan.dropped(value, slot));
  }
  for (int32_t node = 0; node < static_cast<int32_t>(problem.num_all_nodes()); ++node)
    EXPECT_EQ(plan.chosen(node), node);
}

TEST(RetentionPlan, ADropConcernsOneValueAndOneSlot) {
  const auto problem = chain(3);
  RetentionPlan plan(problem);
  plan.drop(1, 3);
  EXPECT_TRUE(plan.dropped(1, 3));
  EXPECT_FALSE(plan.dropped(1, 2));
  EXPECT_FALSE(plan.dropped(2, 3));
  EXPECT_FALSE(plan.dropped_in_first_slot(1));
  plan.keep(1, 3);
  EXPECT_TRUE(plan == RetentionPlan(problem));
}

TEST(RetentionPlan, SetAlwaysReplacesExceptions) {
  const auto problem = chain(3);
  RetentionPlan plan(problem);
  plan.drop(1, 2);
  plan.drop_always(1);
  for (size_t slot = 0; slot < plan.num_slots(); ++slot) {
    EXPECT_TRUE(plan.dropped(1, slot));
    EXPECT_FALSE(plan.dropped(2, slot));
  }
  plan.set_always(1, false);
  EXPECT_TRUE(plan == RetentionPlan(problem));
}

// More than 30 slots, so that several slots share a bit of the filter.
TEST(RetentionPlan, AgreesWithATableOfBits) {
  constexpr int kLength = 70;
  const auto problem = chain(kLength);
  const auto num_values = problem.num_values();
  RetentionPlan plan(problem);
  std::vector<std::vector<uint8_t>> bits(num_values, std::vector<uint8_t>(kLength + 1, 0));
  std::mt19937 random(1);
  for (int round = 0; round < 5000; ++round) {
    const auto value = random() % num_values;
    const auto slot = random() % (kLength + 1);
    const auto dropped = static_cast<uint8_t>(random() % 2);
    switch (random() % 20) {
      case 0:
        plan.set_always(static_cast<int32_t>(value), dropped != 0);
        bits[value].assign(kLength + 1, dropped);
        break;
      case 1:
        for (auto& bit : bits[value])
          bit = static_cast<uint8_t>(random() % 2);
        plan.set_slots(static_cast<int32_t>(value), bits[value]);
        break;
      default:
        plan.set(static_cast<int32_t>(value), slot, dropped != 0);
        bits[value][slot] = dropped;
    }
  }
  RetentionPlan copy(problem);
  for (size_t value = 0; value < num_values; ++value) {
    const auto index = static_cast<int32_t>(value);
    for (size_t slot = 0; slot <= kLength; ++slot)
      ASSERT_EQ(plan.dropped(index, slot), bits[value][slot] != 0) << value << ' ' << slot;
    copy.set_slots(index, bits[value]);
  }
  EXPECT_TRUE(copy == plan) << "equal decisions are equal plans, however they were made";
  copy.set(1, 40, !copy.dropped(1, 40));
  EXPECT_FALSE(copy == plan);
}

TEST(RetentionPlan, PlansWithOtherAlternativesDiffer) {
  const auto problem = chain(3);
  RetentionPlan plan(problem);
  plan.choose(2, 5);
  EXPECT_EQ(plan.chosen(2), 5);
  EXPECT_FALSE(plan == RetentionPlan(problem));
}

TEST(KeepWhatIsRead, DropsOtherValuesAtTheEndOfTheForward) {
  test::SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 100)}, 10);
  const auto view = b.view("view", {a});
  const auto unread = b.fresh("unread", {a}, 10);
  b.start_backward();
  b.result(b.fresh("g", {b.incoming("dy", 1), view}, 1));
  const auto plan = keep_what_is_read(b.build());
  EXPECT_FALSE(plan.dropped(a, 0)) << "a view of it is read";
  EXPECT_TRUE(plan.dropped(view, 0));
  EXPECT_TRUE(plan.dropped(unread, 0));
  EXPECT_FALSE(plan.dropped(unread, 1));
}

}  // namespace
}  // namespace aten_recompute
