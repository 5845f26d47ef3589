#include "planner/model/memory_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(MemoryTables, OnlyStoragesOfOneValueHaveOwnBytes) {
  test::SmallProblemBuilder b;
  const auto x = b.held("x", 100);
  const auto alone = b.fresh("alone", {x}, 10);
  const auto viewed = b.fresh("viewed", {x}, 20);
  const auto view = b.view("view", {viewed});
  const auto empty = b.fresh("empty", {x}, 0);
  const MemoryTables tables(b.build());
  EXPECT_EQ(tables.own_bytes[alone], 10);
  EXPECT_EQ(tables.own_bytes[viewed], -1);
  EXPECT_EQ(tables.own_bytes[view], -1);
  EXPECT_THAT(tables.storages[x], IsEmpty()) << "memory of the caller does not count";
  EXPECT_THAT(tables.storages[empty], IsEmpty());
}

TEST(MemoryTables, ANodeReadsEachValueThatTakesMemoryOnce) {
  test::SmallProblemBuilder b;
  const auto x = b.held("x", 100);
  const auto a = b.fresh("a", {x}, 10);
  const auto y = b.fresh("y", {a, x, a}, 10);
  const auto problem = b.build();
  const MemoryTables tables(problem);
  const auto& node = tables.nodes[problem.producer[y]];
  ASSERT_EQ(node.reads.end - node.reads.begin, 1);
  EXPECT_EQ(tables.reads[node.reads.begin].value, a);
  EXPECT_EQ(tables.reads[node.reads.begin].own_bytes, 10);
}

TEST(MemoryTables, OperandsOfOtherSizesAreNotOverwritten) {
  test::SmallProblemBuilder b;
  const auto x = b.held("x", 10);
  const auto same = b.fresh("same", {x}, 10);
  const auto larger = b.fresh("larger", {x}, 20);
  const auto y = b.fresh("y", {larger, same, x}, 10);
  b.overwrites({larger, same, x});
  const auto problem = b.build();
  const MemoryTables tables(problem);
  const auto& node = tables.nodes[problem.producer[y]];
  ASSERT_EQ(node.overwrites.end - node.overwrites.begin, 1);
  EXPECT_EQ(tables.overwrites[node.overwrites.begin].value, same);
  EXPECT_EQ(tables.overwrites[node.overwrites.begin].reusable_operands, 2U) << "it is the second";
}

TEST(MemoryTables, ResultsAreDividedIntoForwardAndBackward) {
  test::SmallProblemBuilder b;
  const auto x = b.held("x", 10);
  const auto y = b.fresh("y", {x}, 10);
  b.start_backward();
  const auto dx = b.fresh("dx", {b.incoming("dy", 10)}, 10);
  for (auto value : {dx, y, x})
    b.result(value);
  auto problem = b.build();
  problem.freed_before_backward = {y};
  const MemoryTables tables(problem);
  EXPECT_THAT(tables.forward_results, ElementsAre(y, x));
  EXPECT_THAT(tables.backward_results, ElementsAre(dx));
  EXPECT_TRUE(tables.is_freed_before_backward[y]);
  EXPECT_FALSE(tables.is_freed_before_backward[x]);
}

}  // namespace
}  // namespace aten_recompute
