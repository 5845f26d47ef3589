// Where the peak of a step is, for problems that are small enough to be worked out by hand.
#include "planner/model/explain_peak.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/model/method_problem.h"
#include "planner/model/problem_json.h"
#include "planner/search/budget.h"
#include "tests/cpp/support/plan_testing.h"

namespace aten_recompute {
namespace {

using test::SmallProblemBuilder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int64_t kMiB = 1 << 20;

PeakStep peak_of(const Problem& problem, const RetentionPlan& plan) {
  Simulator simulator(problem);
  const auto simulation = simulator.run(plan);
  const auto peak = simulator.peak(simulation);
  EXPECT_EQ(peak.step, simulation.peak_step);
  EXPECT_EQ(peak.node, simulator.steps()[peak.step].node);
  EXPECT_EQ(peak.operand_bytes + peak.result_bytes + peak.workspace_bytes + peak.other_bytes,
            simulation.peak_bytes);
  return peak;
}

PeakStep peak_of(const Problem& problem) {
  return peak_of(problem, RetentionPlan(problem));
}

std::string name_at(const Problem& problem, const PeakStep& peak) {
  return peak_operator(problem, peak).name;
}

// a = f(x), y = g(a); the backward of g reads a, and that of f nothing.
struct Small {
  SmallProblemBuilder b;
  int32_t x = b.held("x", 1000);
  int32_t a = b.fresh("a", {x}, 10);
  int32_t y = b.fresh("y", {a}, 40);
  int32_t dy = 0, ga = 0, gx = 0;

  Small() {
    b.result(y);
    b.start_backward();
    dy = b.incoming("dy", 40);
    ga = b.fresh("ga", {dy, a}, 30);
    b.workspace(100);
    gx = b.fresh("gx", {ga}, 5);
    b.result(gx);
  }
};

TEST(PeakStep, HasTheOperandsTheResultsAndTheWorkspaceOfTheNode) {
  const auto problem = Small().b.build();
  const auto peak = peak_of(problem);
  EXPECT_EQ(name_at(problem, peak), "ga");
  EXPECT_EQ(peak.operand_bytes, 40 + 10);  // dy, a
  EXPECT_EQ(peak.result_bytes, 30);
  EXPECT_EQ(peak.workspace_bytes, 100);
  EXPECT_EQ(peak.other_bytes, 40);  // y, which the caller holds
  EXPECT_EQ(peak.output_bytes, 40);
  EXPECT_EQ(peak.gradient_bytes, 0);
  EXPECT_EQ(peak.alone_bytes, 50 + 30 + 100);
}

TEST(PeakStep, CountsMemoryOfTheCallerAsNothing) {
  SmallProblemBuilder b;
  const auto weight = b.held("weight", 1000);
  const auto y = b.fresh("y", {weight, b.held("x", 50)}, 10);
  b.workspace(20);
  b.result(y);
  b.start_backward();
  const auto problem = b.build();
  const auto peak = peak_of(problem);
  EXPECT_EQ(name_at(problem, peak), "y");
  EXPECT_EQ(peak.operand_bytes, 0);
  EXPECT_EQ(peak.result_bytes, 10);
  EXPECT_EQ(peak.workspace_bytes, 20);
}

TEST(PeakStep, CountsStoragesOnceAndViewsNotAtAll) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 100)}, 10);
  const auto v = b.view("v", {a});
  const auto c = b.fresh("c", {a, v, a}, 20);
  b.workspace(7);
  b.result(c);
  b.start_backward();
  const auto peak = peak_of(b.build());
  EXPECT_EQ(peak.operand_bytes, 10);
  EXPECT_EQ(peak.result_bytes, 20);
  EXPECT_EQ(peak.other_bytes, 0);
}

TEST(PeakStep, AResultInTheMemoryOfAnOperandTakesNone) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 100)}, 10);
  const auto c = b.fresh("c", {a}, 10);
  b.overwrites({a});
  b.workspace(7);
  b.result(c);
  b.start_backward();
  const auto peak = peak_of(b.build());
  EXPECT_EQ(peak.operand_bytes, 10);
  EXPECT_EQ(peak.result_bytes, 0);
  EXPECT_EQ(peak.workspace_bytes, 7);
  EXPECT_EQ(peak.alone_bytes, 17);
}

TEST(PeakStep, AloneANodeMayNeedLessThanInThisPlan) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 100)}, 10);
  const auto c = b.fresh("c", {a}, 10);
  b.overwrites({a});
  b.workspace(7);
  b.result(c);
  b.result(a);  // so that it cannot be overwritten
  b.start_backward();
  const auto peak = peak_of(b.build());
  EXPECT_EQ(peak.result_bytes, 10);
  EXPECT_EQ(peak.alone_bytes, 17);
}

TEST(PeakStep, IncludesTheRandomStateThatIsSetAside) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 100)}, 10);
  b.replay(500);
  b.result(b.fresh("y", {a}, 1));
  b.start_backward();
  const auto dy = b.incoming("dy", 1);
  b.result(b.fresh("gx", {dy, a}, 5));
  const auto problem = b.build();
  RetentionPlan plan(problem);
  plan.drop(a, 0);
  const auto peak = peak_of(problem, plan);
  EXPECT_EQ(name_at(problem, peak), "a");
  EXPECT_EQ(peak.workspace_bytes, 500);  // the present state
  EXPECT_EQ(peak.other_bytes, 500 + 2);  // the state to run with; y and dy
}

TEST(PeakStep, GradientsThatExistAreToldFromTheRest) {
  SmallProblemBuilder b;
  const auto y = b.fresh("y", {b.held("x", 100)}, 10);
  b.result(y);
  b.start_backward();
  const auto dy = b.incoming("dy", 10);
  b.result(b.fresh("gw", {dy}, 300));
  b.result(b.fresh("gx", {dy}, 20));
  b.workspace(50);
  const auto problem = b.build();
  const auto peak = peak_of(problem);
  EXPECT_EQ(name_at(problem, peak), "gx");
  EXPECT_EQ(peak.gradient_bytes, 300);
  EXPECT_EQ(peak.result_bytes, 20);
  EXPECT_EQ(peak.other_bytes, 300 + 10);
}

TEST(PeakStep, OutputsThatTheBackwardReadsAreNotTheCallersAlone) {
  SmallProblemBuilder b;
  const auto y = b.fresh("y", {b.held("x", 100)}, 10);
  const auto z = b.fresh("z", {b.held("w", 100)}, 3);
  b.result(y);
  b.result(z);
  b.start_backward();
  const auto dy = b.incoming("dy", 10);
  const auto g = b.fresh("g", {dy}, 20);
  b.workspace(50);
  b.result(b.fresh("gx", {g, y}, 5));
  const auto problem = b.build();
  const auto peak = peak_of(problem);
  EXPECT_EQ(name_at(problem, peak), "g");
  EXPECT_EQ(peak.other_bytes, 10 + 3);
  EXPECT_EQ(peak.output_bytes, 3);
}

TEST(PeakStep, ThePeakMayBeAtTheLoss) {
  SmallProblemBuilder b;
  const auto a = b.fresh("a", {b.held("x", 100)}, 10);
  b.result(b.fresh("y", {a}, 40));
  b.start_backward();
  const auto dy = b.incoming("dy", 40);
  b.result(b.fresh("gx", {dy, a}, 5));
  auto problem = b.build();
  problem.loss_bytes = 1000;
  const auto peak = peak_of(problem);
  EXPECT_TRUE(peak.at_loss);
  EXPECT_EQ(name_at(problem, peak), "loss");
  EXPECT_EQ(peak.operand_bytes, 40);
  EXPECT_EQ(peak.workspace_bytes, 1000);
  EXPECT_EQ(peak.other_bytes, 10 + 40);  // a; dy, which the loss returns
  EXPECT_THAT(
      explanation(problem, peak, 10, {}),
      AllOf(HasSubstr("; the peak is at the loss: outputs 40 B, what the loss needs 1000 B"),
            Not(HasSubstr("would help"))));
}

TEST(PeakStep, WithoutStepsThereIsNone) {
  const auto problem = ProblemBuilder().build();
  Simulator simulator(problem);
  const auto peak = simulator.peak(simulator.run(RetentionPlan(problem)));
  EXPECT_EQ(peak.step, -1);
  EXPECT_EQ(name_at(problem, peak), "");
  EXPECT_EQ(explanation(problem, peak, 1, {}), "");
}

TEST(PeakStep, LooksAtTheLastRunWithoutChangingIt) {
  const auto problem = Small().b.build();
  Simulator simulator(problem);
  const auto simulation = simulator.run(RetentionPlan(problem));
  const auto captured = simulator.captured();
  const auto bytes = simulator.step_bytes();
  const auto first = simulator.peak(simulation);
  EXPECT_EQ(simulator.peak(simulation).other_bytes, first.other_bytes);
  EXPECT_EQ(simulator.captured(), captured);
  EXPECT_EQ(simulator.step_bytes(), bytes);
  EXPECT_EQ(simulator.run(RetentionPlan(problem)).peak_bytes, simulation.peak_bytes);
}

// One node with a place and these bytes, in MiB, at the peak.
struct Placed {
  SmallProblemBuilder b;
  Problem problem;

  Placed(int64_t operand, int64_t result, int64_t workspace, int64_t output, int64_t gradient) {
    const auto a = b.fresh("a", {b.held("x", 1)}, operand * kMiB);
    b.result(b.fresh("out", {b.held("w", 1)}, output * kMiB));
    b.start_backward();
    b.result(b.fresh("gw", {a}, gradient * kMiB));
    b.result(b.fresh("aten::convolution_backward", {a}, result * kMiB));
    b.workspace(workspace * kMiB);
    b.place("layer3.0", "/models/resnet.py:52");
    problem = b.build();
  }
  std::string text(int64_t limit, const Options& options = {}) const {
    return explanation(problem, peak_of(problem), limit * kMiB, options);
  }
};

constexpr const char* kPlace =
    "; the peak is at aten::convolution_backward of layer3.0 (resnet.py:52): operands ";

TEST(Explanation, NamesTheOperatorAndItsShare) {
  EXPECT_EQ(
      Placed(12, 8, 4, 10, 10).text(30),
      std::string(kPlace) + "12.0 MiB, results 8.0 MiB, workspace 4.0 MiB, other values 20.0 MiB");
}

TEST(Explanation, SaysThatNoPlanCanHelpAnOperatorThatIsTooLargeAlone) {
  EXPECT_EQ(Placed(12, 8, 4, 10, 10).text(23),
            std::string(kPlace) +
                "12.0 MiB, results 8.0 MiB, workspace 4.0 MiB, other values 20.0 MiB; this "
                "operator alone needs 24.0 MiB, so no plan can keep the budget: a smaller batch or "
                "smaller inputs would help, or \"exact\": false, which may run it slice by slice");
}

TEST(Explanation, PointsAtAccumulateWhereGradientsDominate) {
  const Placed placed(1, 1, 2, 1, 50);
  EXPECT_THAT(placed.text(40), HasSubstr("; 50.0 MiB of the other values are gradients; those of "
                                         "parameters do not count with \"accumulate\": true"));
  Options accumulate;
  accumulate.accumulate = true;
  EXPECT_THAT(placed.text(40, accumulate), Not(HasSubstr("accumulate")));
}

TEST(Explanation, PointsAtReleaseOutputsWhereOutputsDominate) {
  const Placed placed(1, 1, 2, 50, 1);
  EXPECT_THAT(placed.text(40), HasSubstr("; 50.0 MiB of the other values are outputs; they do not "
                                         "count with \"release_outputs\": true"));
  Options release;
  release.release_outputs = true;
  EXPECT_THAT(placed.text(40, release), Not(HasSubstr("release_outputs")));
}

TEST(Explanation, LeavesOutAPlaceThatIsNotKnown) {
  const auto problem = Small().b.build();
  EXPECT_THAT(explanation(problem, peak_of(problem), 1000, {}),
              HasSubstr("; the peak is at ga: operands 50 B, "));
}

TEST(Explanation, NodesBetweenRunsAreOperatorsBetweenTheRegions) {
  PeakOperator peak;
  peak.name = "between regions";
  EXPECT_EQ(describe(peak), "operators between the regions");
  EXPECT_TRUE(is_border("between"));
  EXPECT_FALSE(is_border("aten::sum"));
}

TEST(Places, SurviveJson) {
  const Placed placed(1, 1, 1, 1, 1);
  const auto text = to_json(placed.problem);
  const auto read = problem_from_json(text);
  const auto node = static_cast<int32_t>(read.num_nodes) - 1;
  EXPECT_EQ(read.layer_of(node), "layer3.0");
  EXPECT_EQ(read.source_of(node), "/models/resnet.py:52");
  EXPECT_EQ(read.layer_of(0), "");
  EXPECT_EQ(to_json(read), text);
}

TEST(Places, AreNotInTheJsonOfAProblemWithoutThem) {
  const auto problem = Small().b.build();
  const auto text = to_json(problem);
  EXPECT_THAT(text, Not(HasSubstr("layer")));
  EXPECT_EQ(problem_from_json(text).layer_of(0), "");
}

TEST(Places, AreStoredOnceForAllNodesThatShareThem) {
  ProblemBuilder builder;
  for (int i = 0; i < 3; ++i)
    builder.add_node(
        {.name = "n", .place = builder.place("layer", "a.py:" + std::to_string(i / 2))});
  const auto problem = builder.build();
  EXPECT_EQ(problem.layers.size(), 1);
  EXPECT_EQ(problem.sources.size(), 2);
  EXPECT_EQ(problem.source_of(2), "a.py:1");
}

TEST(Places, GoIntoTheProblemOfAMethod) {
  const Placed placed(1, 1, 1, 1, 1);
  RegionRun run;
  run.problem = &placed.problem;
  const auto joint = join({run}).problem;
  bool found = false;
  for (size_t node = 0; node < joint.num_nodes; ++node)
    found = found || joint.layer_of(static_cast<int32_t>(node)) == "layer3.0";
  EXPECT_TRUE(found);
}

TEST(ExplainPeak, TheJsonIsOneLineWithNamesAsTheyAre) {
  PeakOperator peak;
  peak.name = "aten::mul";
  peak.layer = "h\xc3\xb6her";
  peak.source = "\xff.py:1";  // no text, but the name of a file may have any bytes
  const auto text = to_json(peak);
  EXPECT_THAT(
      text, AllOf(HasSubstr("h\xc3\xb6her"), HasSubstr("\xef\xbf\xbd.py:1"), Not(HasSubstr("\n"))));
}

}  // namespace
}  // namespace aten_recompute
