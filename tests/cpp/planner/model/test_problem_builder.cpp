#include "planner/model/problem_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

TEST(ProblemBuilder, FillsEveryListOfNodes) {
  ProblemBuilder builder;
  const auto x = builder.add_value("x", {builder.add_storage(8, /*held=*/true)});
  const auto node = builder.add_node({.name = "f",
                                      .inputs = {x},
                                      .overwrites = {x},
                                      .seconds = 2.0,
                                      .flops = 3.0,
                                      .workspace_bytes = 4,
                                      .replay_bytes = 5,
                                      .recomputable = true,
                                      .is_view = true,
                                      .optional = true});
  const auto y = builder.add_output(node, "y", {0});
  const auto problem = builder.build();
  EXPECT_THAT(problem.node_names, ElementsAre("f"));
  EXPECT_THAT(problem.inputs[0], ElementsAre(x));
  EXPECT_THAT(problem.outputs[0], ElementsAre(y));
  EXPECT_THAT(problem.overwrites[0], ElementsAre(x));
  EXPECT_THAT(problem.seconds, ElementsAre(2.0));
  EXPECT_THAT(problem.flops, ElementsAre(3.0));
  EXPECT_THAT(problem.workspace_bytes, ElementsAre(4));
  EXPECT_THAT(problem.replay_bytes, ElementsAre(5));
  EXPECT_THAT(problem.recomputable, ElementsAre(1));
  EXPECT_THAT(problem.is_view, ElementsAre(1));
  EXPECT_THAT(problem.optional, ElementsAre(1));
  EXPECT_EQ(problem.alternatives.size(), 1U);
  EXPECT_EQ(problem.producer[x], -1);
  EXPECT_EQ(problem.producer[y], node);
}

TEST(ProblemBuilder, CountsForwardAndBackwardWithoutAlternatives) {
  ProblemBuilder builder;
  const auto f = builder.add_node({.name = "f"});
  builder.start_backward();
  const auto g = builder.add_node({.name = "g"});
  const auto first = builder.add_alternative(g, {.name = "first"});
  const auto second = builder.add_alternative(f, {.name = "second"});
  const auto third = builder.add_alternative(g, {.name = "third"});
  const auto problem = builder.build();
  EXPECT_EQ(problem.num_forward, 1U);
  EXPECT_EQ(problem.num_nodes, 2U);
  EXPECT_EQ(problem.num_all_nodes(), 5U);
  EXPECT_THAT(problem.alternatives[g], ElementsAre(first, third));
  EXPECT_THAT(problem.alternatives[f], ElementsAre(second));
}

TEST(ProblemBuilder, ChangesBeforeBuildReachTheProblem) {
  ProblemBuilder builder;
  const auto storage = builder.add_storage(8, /*held=*/true);
  const auto x = builder.add_incoming("x", {storage});
  builder.set_storage(storage, 16, /*held=*/false);
  builder.node(builder.add_node({.name = "f"})).seconds = 7.0;
  builder.add_result(x);
  const auto problem = builder.build();
  EXPECT_EQ(problem.incoming_bytes(), 16);
  EXPECT_THAT(problem.seconds, ElementsAre(7.0));
  EXPECT_THAT(problem.incoming, ElementsAre(x));
  EXPECT_THAT(problem.results, ElementsAre(x));
}

}  // namespace
}  // namespace aten_recompute
