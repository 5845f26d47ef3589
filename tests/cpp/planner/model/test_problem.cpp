#include "planner/model/problem.h"
#include "planner/model/problem_json.h"

#include <nlohmann/json.hpp>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using test::SmallProblemBuilder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Has one of everything: a list of two tensors, a node with two outputs, an optional node, an
// alternative, and a node that runs once.
Problem example() {
  SmallProblemBuilder b;
  const auto x = b.held("x", 1000);
  const auto a = b.fresh("a", {x}, 10);
  b.replay(16);
  b.seconds(0.1);  // no binary fraction, so the text needs all digits
  const auto pair = b.fresh({a}, {{"p", 4}, {"q", 8}});
  const auto list = b.view("list", {pair[0], pair[1]});
  const auto mask = b.fresh("mask", {a}, 1);
  b.optional();
  const auto y = b.fresh("y", {list}, 20);
  b.workspace(7);
  b.once();
  b.result(y);
  b.start_backward();
  const auto dy = b.incoming("dy", 20);
  const auto da = b.fresh("da", {dy, a}, 20);
  b.overwrites({dy});
  b.result(da);
  b.alternative(da, {dy, mask}, 0.5);
  auto problem = b.build();
  problem.loss_bytes = 20;
  return problem;
}

std::vector<std::vector<int32_t>> to_vectors(const JaggedArray& rows) {
  std::vector<std::vector<int32_t>> result;
  for (size_t i = 0; i < rows.size(); ++i)
    result.emplace_back(rows[i].begin(), rows[i].end());
  return result;
}

TEST(Problem, IsTheSameAfterAJsonRoundTrip) {
  const auto problem = example();
  const auto again = problem_from_json(to_json(problem));
  EXPECT_EQ(again.num_forward, problem.num_forward);
  EXPECT_EQ(again.num_nodes, problem.num_nodes);
  EXPECT_EQ(again.node_names, problem.node_names);
  EXPECT_EQ(to_vectors(again.inputs), to_vectors(problem.inputs));
  EXPECT_EQ(to_vectors(again.outputs), to_vectors(problem.outputs));
  EXPECT_EQ(to_vectors(again.overwrites), to_vectors(problem.overwrites));
  EXPECT_EQ(again.seconds, problem.seconds);
  EXPECT_EQ(again.flops, problem.flops);
  EXPECT_EQ(again.workspace_bytes, problem.workspace_bytes);
  EXPECT_EQ(again.replay_bytes, problem.replay_bytes);
  EXPECT_EQ(again.recomputable, problem.recomputable);
  EXPECT_EQ(again.is_view, problem.is_view);
  EXPECT_EQ(to_vectors(again.alternatives), to_vectors(problem.alternatives));
  EXPECT_EQ(again.optional, problem.optional);
  EXPECT_EQ(again.value_names, problem.value_names);
  EXPECT_EQ(again.producer, problem.producer);
  EXPECT_EQ(to_vectors(again.storages), to_vectors(problem.storages));
  EXPECT_EQ(again.bytes, problem.bytes);
  EXPECT_EQ(again.held, problem.held);
  EXPECT_EQ(again.results, problem.results);
  EXPECT_EQ(again.incoming, problem.incoming);
  EXPECT_EQ(again.loss_bytes, problem.loss_bytes);
  EXPECT_EQ(to_json(again), to_json(problem));
}

TEST(Problem, OtherCallsAndBackwardsRoundTrip) {
  auto problem = example();
  problem.retains_graph = problem.repeats_backward = true;
  problem.other_calls = 1.5;
  problem.added_results = {problem.results[0]};
  const auto again = problem_from_json(to_json(problem));
  EXPECT_TRUE(again.retains_graph && again.repeats_backward);
  EXPECT_EQ(again.other_calls, 1.5);
  EXPECT_EQ(again.added_results, problem.added_results);
}

TEST(Problem, AnEmptyProblemRoundTrips) {
  const auto again = problem_from_json(to_json(Problem()));
  EXPECT_EQ(again.num_all_nodes(), 0U);
  EXPECT_EQ(again.num_values(), 0U);
}

void expect_problem_refused(const std::string& text, const std::string& message) {
  try {
    problem_from_json(text);
    FAIL() << "accepted: " << text;
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr(message)) << text;
  }
}

// The example with one entry changed.
std::string changed_example(const std::string& pointer, const nlohmann::json& value) {
  auto json = nlohmann::json::parse(to_json(example()));
  json[nlohmann::json::json_pointer(pointer)] = value;
  return json.dump();
}

TEST(Problem, RefusesJsonThatIsNoProblem) {
  expect_problem_refused("", "not a planning problem: ");
  expect_problem_refused("[]", "not a planning problem: ");
  expect_problem_refused("{}", "'format'");
  expect_problem_refused(
      changed_example("/format", "aten_recompute.problem/2"),
      R"("format" is "aten_recompute.problem/2", expected "aten_recompute.problem/1")");
  auto json = nlohmann::json::parse(to_json(example()));
  json["nodes"].erase("seconds");
  expect_problem_refused(json.dump(), "'seconds'");
  expect_problem_refused(changed_example("/nodes/seconds", "fast"), "not a planning problem: ");
  expect_problem_refused(changed_example("/num_forward", "four"), "not a planning problem: ");
  expect_problem_refused(changed_example("/nodes/flops", nlohmann::json::array({1.0})),
                         "lists of \"nodes\" differ in length");
  expect_problem_refused(changed_example("/nodes/replay_bytes", nlohmann::json::array({1})),
                         "lists of \"nodes\" differ in length");
  expect_problem_refused(changed_example("/num_nodes", 100), "counts and lists do not agree");
  expect_problem_refused(changed_example("/num_forward", 7), "counts and lists do not agree");
  expect_problem_refused(changed_example("/values/name", nlohmann::json::array({"x"})),
                         "counts and lists do not agree");
  expect_problem_refused(changed_example("/storages/held", nlohmann::json::array({1})),
                         "counts and lists do not agree");
}

// Lists refer to one another by index. An index that is out of range would be read out of bounds.
TEST(Problem, RefusesAnIndexOutOfRange) {
  for (const char* pointer :
       {"/nodes/inputs/1", "/nodes/outputs/1", "/nodes/overwrites/1", "/nodes/alternatives/1",
        "/values/storages/1", "/results", "/incoming", "/values/producer"}) {
    auto json = nlohmann::json::parse(to_json(example()));
    auto& row = json[nlohmann::json::json_pointer(pointer)];
    if (row.empty())
      row.push_back(0);
    row[0] = 99;
    expect_problem_refused(json.dump(), "has the index 99");
    row[0] = -2;
    expect_problem_refused(json.dump(), "has the index -2");
  }
}

// Sums of such numbers would overflow, and comparisons with them have no order.
TEST(Problem, RefusesCostsThatAreNone) {
  expect_problem_refused(changed_example("/storages/bytes/0", -1), "\"bytes\" has the number -1");
  expect_problem_refused(changed_example("/storages/bytes/0", int64_t{1} << 61), "2^60");
  expect_problem_refused(changed_example("/nodes/workspace_bytes/0", -8), "\"workspace_bytes\"");
  expect_problem_refused(changed_example("/nodes/seconds/0", -1.0), "\"seconds\"");
  expect_problem_refused(changed_example("/nodes/seconds/0", 1e300), "\"seconds\"");
  expect_problem_refused(changed_example("/nodes/flops/0", -1.0), "\"flops\"");
  expect_problem_refused(changed_example("/loss_bytes", -1), "\"loss_bytes\"");
  expect_problem_refused(changed_example("/other_calls", -1.0), "\"other_calls\"");
  expect_problem_refused(changed_example("/other_calls", 1e7), "\"other_calls\"");
}

TEST(Problem, TakesCostsUpToTheirBounds) {
  const auto problem = example();
  int64_t others = problem.loss_bytes + problem.held_by_caller - problem.bytes[0];
  for (const auto* list : {&problem.bytes, &problem.workspace_bytes, &problem.replay_bytes})
    others = std::accumulate(list->begin(), list->end(), others);
  const auto most = (int64_t{1} << 60) - others;
  EXPECT_EQ(problem_from_json(changed_example("/storages/bytes/0", most)).bytes[0], most);
  expect_problem_refused(changed_example("/storages/bytes/0", most + 1), "2^60");
  EXPECT_EQ(problem_from_json(changed_example("/nodes/seconds/0", 1e12)).seconds[0], 1e12);
  expect_problem_refused(changed_example("/nodes/seconds/0", 1.1e12), "\"seconds\"");
  EXPECT_EQ(problem_from_json(changed_example("/nodes/flops/0", 1e30)).flops[0], 1e30);
  expect_problem_refused(changed_example("/nodes/flops/0", 1.1e30), "\"flops\"");
  EXPECT_EQ(problem_from_json(changed_example("/nodes/flops/0", 0.0)).flops[0], 0.0);
}

TEST(Problem, ANameThatIsNotInAsciiStaysAsItIs) {
  auto problem = example();
  problem.node_names[0] = "h\xc3\xb6her";
  const auto text = to_json(problem);
  EXPECT_THAT(text, HasSubstr("h\xc3\xb6her"));
  EXPECT_EQ(problem_from_json(text).node_names[0], problem.node_names[0]);
}

TEST(Problem, LayersAndSourcesAreThoseOfPlaces) {
  auto problem = example();
  EXPECT_EQ(problem.layer_of(1), "");
  EXPECT_EQ(problem.source_of(1), "");
  problem.layers = {"first", "second"};
  problem.sources = {"a.py:1", "b.py:2"};
  problem.places.resize(problem.num_all_nodes());
  problem.places[1].layer = 1;
  problem.places[1].source = 0;
  EXPECT_EQ(problem.layer_of(1), "second");
  EXPECT_EQ(problem.source_of(1), "a.py:1");
  EXPECT_EQ(problem.layer_of(0), "");
  EXPECT_EQ(problem.source_of(0), "");
}

TEST(Problem, RefusesAnOrderInWhichNothingCanRun) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 100);
  const auto a = b.fresh("a", {x}, 10);
  b.fresh("c", {a}, 10);
  auto json = nlohmann::json::parse(to_json(b.build()));
  EXPECT_NO_THROW(problem_from_json(json.dump()));
  json["nodes"]["inputs"][0] = {2};  // what the second node makes
  expect_problem_refused(json.dump(), "reads what a later one makes");
  json["nodes"]["inputs"][0] = {1};  // what it makes itself
  expect_problem_refused(json.dump(), "reads what a later one makes");
}

TEST(Problem, RefusesValuesWithTwoMakersOrNone) {
  expect_problem_refused(changed_example("/values/producer/1", -1), "do not agree");
  expect_problem_refused(changed_example("/values/producer/0", 0), "reads what a later one makes");
  auto json = nlohmann::json::parse(to_json(example()));
  auto& outputs = json["nodes"]["outputs"][0];
  outputs.push_back(outputs[0]);
  expect_problem_refused(json.dump(), "do not agree");
}

TEST(Problem, RefusesSubstitutesThatMakeOtherValues) {
  auto json = nlohmann::json::parse(to_json(example()));
  json["nodes"]["alternatives"][0] = {0};
  expect_problem_refused(json.dump(), "stands in for another one");
}

TEST(Problem, RefusesOverwritingWhatIsNotRead) {
  expect_problem_refused(changed_example("/nodes/overwrites/0", {4}),
                         "overwrites what it does not read");
}

TEST(Problem, RefusesDeepNesting) {
  expect_problem_refused(std::string(100'000, '['), "nested more than 64 levels deep");
}

TEST(Problem, BytesOfAValueAreThoseThatAreNotHeld) {
  const auto problem = example();
  EXPECT_EQ(problem.value_bytes(0), 0);   // x, held by the caller
  EXPECT_EQ(problem.value_bytes(1), 10);  // a
  EXPECT_EQ(problem.value_bytes(4), 12);  // the list of p and q
}

// a takes 0.1, p and q together 1, the list nothing, y and da 1 each.
TEST(Problem, BaseSecondsLeaveOutOptionalNodesAndAlternatives) {
  EXPECT_DOUBLE_EQ(example().base_seconds(), 3.1);
}

TEST(Problem, IncomingBytesAreThoseOfAllIncomingGradients) {
  SmallProblemBuilder b;
  b.incoming("dy", 20);
  b.incoming("dz", 22);
  b.given("x", 100);
  EXPECT_EQ(b.build().incoming_bytes(), 42);
}

TEST(Problem, ReplayBytesMayBeMissingFromJson) {
  auto json = nlohmann::json::parse(to_json(example()));
  json["nodes"].erase("replay_bytes");
  const auto problem = problem_from_json(json.dump());
  EXPECT_EQ(problem.replay_bytes, std::vector<int64_t>(problem.num_all_nodes(), 0));
}

TEST(BaseValues, AreTheTensorsBehindViewsAndContainers) {
  SmallProblemBuilder b;
  const auto x = b.held("x", 100);
  const auto a = b.fresh("a", {x}, 10);
  const auto c = b.fresh("c", {x}, 10);
  const auto view = b.view("view", {a});
  const auto twice = b.view("twice", {view});
  const auto list = b.view("list", {c, twice, a});
  const auto of_input = b.view("of_input", {x});
  const auto copy = b.fresh("copy", {list}, 10);
  const auto rows = base_values(b.build());
  EXPECT_THAT(rows[x], ElementsAre(x));
  EXPECT_THAT(rows[a], ElementsAre(a));
  EXPECT_THAT(rows[view], ElementsAre(a));
  EXPECT_THAT(rows[twice], ElementsAre(a));
  EXPECT_THAT(rows[list], ElementsAre(a, c));  // each once, in order
  EXPECT_THAT(rows[of_input], ElementsAre(x));
  EXPECT_THAT(rows[copy], ElementsAre(copy));
}

}  // namespace
}  // namespace aten_recompute
