#include "ir/save_plan.h"
#include "passes/partition/extract.h"
#include "passes/partition/splice.h"
#include "rules/recomputability.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include <functional>

#include "ir/symbols.h"
#include "passes/autodiff/differentiate.h"
#include "passes/strategy/graph_problem.h"
#include "planner/model/simulator.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::backward_listing;
using test::find_nodes;
using test::forward_listing;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Splice : public test::TorchTest {};

// h = mm(x, w), a = relu(h), y = sigmoid(a). The output is not y itself, because outputs are never
// recomputed.
JointGraph chain() {
  return test::parse_joint(
      {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {1}}, R"(
graph(%x : Tensor, %w : Tensor, %dy : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h : Tensor = aten::mm(%x, %w)
  %a : Tensor = aten::relu(%h)
  %y : Tensor = aten::sigmoid(%a)
  %out : Tensor = aten::abs(%y)
  aten_recompute::backward_start()
  %da : Tensor = aten::sigmoid_backward(%dy, %y)
  %dh : Tensor = aten::threshold_backward(%da, %a, %zero)
  %xt : Tensor = aten::t(%x)
  %dw : Tensor = aten::mm(%xt, %dh)
  return (%out, %dw)
)");
}

// y = exp(h) * cos(h), with h = sin(x)
JointGraph branches() {
  return test::parse_joint(
      {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %h : Tensor = aten::sin(%x)
  %b : Tensor = aten::exp(%h)
  %c : Tensor = aten::cos(%h)
  %y : Tensor = aten::mul(%b, %c)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::mul(%dy, %b)
  %d2 : Tensor = aten::mul(%d1, %c)
  return (%y, %d2)
)");
}

JointGraph spliced(JointGraph joint, const std::vector<std::string>& saved) {
  splice(joint, test::plan_of(joint, saved));
  joint.graph->lint();
  return joint;
}

// `decide` is given a function that returns the problem's value of a name.
void splice_decisions(
    JointGraph& joint,
    const std::function<void(const std::function<int32_t(const char*)>&, RetentionPlan&)>& decide) {
  const auto problem = make_problem(joint, nullptr);
  RetentionPlan retention(problem.problem);
  decide([&](const char* name) { return problem.index.at(test::find_value(*joint.graph, name)); },
         retention);
  Simulator simulator(problem.problem);
  simulator.run(retention);
  splice(joint, problem, simulator.steps());
  joint.graph->lint();
}

TEST_F(Splice, WithNothingSavedTheWholeChainIsCopied) {
  const auto joint = spliced(chain(), {});
  EXPECT_THAT(forward_listing(joint), ElementsAre("h = aten::mm(x, w)", "a = aten::relu(h)",
                                                  "y = aten::sigmoid(a)", "out = aten::abs(y)"));
  EXPECT_THAT(
      backward_listing(joint),
      ElementsAre("h_recomputed = aten::mm(x, w)", "a_recomputed = aten::relu(h_recomputed)",
                  "y_recomputed = aten::sigmoid(a_recomputed)",
                  "da = aten::sigmoid_backward(dy, y_recomputed)",
                  "dh = aten::threshold_backward(da, a_recomputed, 0)", "xt = aten::t(x)",
                  "dw = aten::mm(xt, dh)"));
  EXPECT_THAT(captured_values(joint), IsEmpty());
}

TEST_F(Splice, ASavedValueEndsTheChain) {
  const auto joint = spliced(chain(), {"a"});
  EXPECT_THAT(backward_listing(joint), ElementsAre("y_recomputed = aten::sigmoid(a)",
                                                   "da = aten::sigmoid_backward(dy, y_recomputed)",
                                                   "dh = aten::threshold_backward(da, a, 0)",
                                                   "xt = aten::t(x)", "dw = aten::mm(xt, dh)"));
  EXPECT_THAT(test::names(captured_values(joint)), ElementsAre("a"));
}

TEST_F(Splice, AValueThatOnlyRecomputationReadsCanBeSaved) {
  const auto joint = spliced(chain(), {"h"});
  EXPECT_EQ(backward_listing(joint)[0], "a_recomputed = aten::relu(h)");
  EXPECT_THAT(test::names(captured_values(joint)), ElementsAre("h"));
}

TEST_F(Splice, SavingEverythingChangesNothing) {
  auto joint = chain();
  const auto before = joint.graph->toString();
  const auto plan = save_everything(joint);
  EXPECT_THAT(test::saved_names(joint, plan), ElementsAre("a", "y"));
  splice(joint, plan);
  EXPECT_EQ(joint.graph->toString(), before);
}

TEST_F(Splice, CopiesAreMarkedAndNothingElseIs) {
  const auto joint = spliced(chain(), {"a"});
  std::vector<std::string> marked;
  for (auto* node : joint.graph->nodes()) {
    if (node->hasAttribute(symbols::kRecomputed))
      marked.push_back(node->output(0)->debugName());
  }
  EXPECT_THAT(marked, ElementsAre("y_recomputed"));
}

// b and c both read h. h is copied once, before b, which is needed first; c is copied for d2.
TEST_F(Splice, BothBranchesReadOneCopy) {
  const auto joint = spliced(branches(), {});
  EXPECT_THAT(
      backward_listing(joint),
      ElementsAre("h_recomputed = aten::sin(x)", "b_recomputed = aten::exp(h_recomputed)",
                  "d1 = aten::mul(dy, b_recomputed)", "c_recomputed = aten::cos(h_recomputed)",
                  "d2 = aten::mul(d1, c_recomputed)"));
}

TEST_F(Splice, ASavedBranchIsReadAndTheOtherIsCopied) {
  const auto joint = spliced(branches(), {"b"});
  EXPECT_THAT(
      backward_listing(joint),
      ElementsAre("d1 = aten::mul(dy, b)", "h_recomputed = aten::sin(x)",
                  "c_recomputed = aten::cos(h_recomputed)", "d2 = aten::mul(d1, c_recomputed)"));
}

// The plan drops h again after d1 (slot 1), so c needs a second copy of it.
TEST_F(Splice, AValueThatIsDroppedInBetweenIsCopiedTwice) {
  auto joint = branches();
  splice_decisions(joint, [](const auto& index, RetentionPlan& retention) {
    for (const char* name : {"h", "b", "c"})
      retention.drop(index(name), 0);
    retention.drop(index("h"), 1);
  });
  // LibTorch renames the older of two values of one name.
  EXPECT_THAT(
      backward_listing(joint),
      ElementsAre("h_recomputed.1 = aten::sin(x)", "b_recomputed = aten::exp(h_recomputed.1)",
                  "d1 = aten::mul(dy, b_recomputed)", "h_recomputed = aten::sin(x)",
                  "c_recomputed = aten::cos(h_recomputed)", "d2 = aten::mul(d1, c_recomputed)"));
  EXPECT_THAT(captured_values(joint), IsEmpty());
}

// A value that the forward saved can be dropped during the backward: b reads the saved h, c a copy.
TEST_F(Splice, ASavedValueCanBeDroppedInBetween) {
  auto joint = branches();
  splice_decisions(joint, [](const auto& index, RetentionPlan& retention) {
    retention.drop(index("b"), 0);
    retention.drop(index("c"), 0);
    retention.drop(index("h"), 1);
  });
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("b_recomputed = aten::exp(h)", "d1 = aten::mul(dy, b_recomputed)",
                          "h_recomputed = aten::sin(x)", "c_recomputed = aten::cos(h_recomputed)",
                          "d2 = aten::mul(d1, c_recomputed)"));
  EXPECT_THAT(test::names(captured_values(joint)), ElementsAre("h"));
}

// Two layers  h = mm(x, w), a = relu(h);  y = tanh of the second, and the output reads y.
JointGraph two_layers() {
  return test::parse_joint(
      {.num_inputs = 3, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {1, 2}}, R"(
graph(%x : Tensor, %w1 : Tensor, %w2 : Tensor, %dy : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h1 : Tensor = aten::mm(%x, %w1)
  %a1 : Tensor = aten::relu(%h1)
  %h2 : Tensor = aten::mm(%a1, %w2)
  %y : Tensor = aten::tanh(%h2)
  %out : Tensor = aten::abs(%y)
  aten_recompute::backward_start()
  %dh2 : Tensor = aten::tanh_backward(%dy, %y)
  %a1t : Tensor = aten::t(%a1)
  %dw2 : Tensor = aten::mm(%a1t, %dh2)
  %w2t : Tensor = aten::t(%w2)
  %da1 : Tensor = aten::mm(%dh2, %w2t)
  %dh1 : Tensor = aten::threshold_backward(%da1, %a1, %zero)
  %xt : Tensor = aten::t(%x)
  %dw1 : Tensor = aten::mm(%xt, %dh1)return (%out, %dw1, %dw2)
)");
}

TEST_F(Splice, ACopyStandsJustBeforeItsFirstUse) {
  const auto joint = spliced(two_layers(), {"y"});
  EXPECT_THAT(
      backward_listing(joint),
      ElementsAre("dh2 = aten::tanh_backward(dy, y)", "h1_recomputed = aten::mm(x, w1)",
                  "a1_recomputed = aten::relu(h1_recomputed)", "a1t = aten::t(a1_recomputed)",
                  "dw2 = aten::mm(a1t, dh2)", "w2t = aten::t(w2)", "da1 = aten::mm(dh2, w2t)",
                  "dh1 = aten::threshold_backward(da1, a1_recomputed, 0)", "xt = aten::t(x)",
                  "dw1 = aten::mm(xt, dh1)"));
}

TEST_F(Splice, CopiesForTheFirstNodeStandFirst) {
  const auto joint = spliced(two_layers(), {"a1"});
  const auto lines = backward_listing(joint);
  EXPECT_THAT(
      std::vector<std::string>(lines.begin(), lines.begin() + 3),
      ElementsAre("h2_recomputed = aten::mm(a1, w2)", "y_recomputed = aten::tanh(h2_recomputed)",
                  "dh2 = aten::tanh_backward(dy, y_recomputed)"));
}

// Each of three chains is copied just before its reader.
TEST_F(Splice, CopiesOfSeparateChainsStandSeparately) {
  const auto joint = spliced(
      test::parse_joint(
          {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %a : Tensor = aten::sin(%x)
  %b : Tensor = aten::exp(%x)
  %c : Tensor = aten::cos(%x)
  %ab : Tensor = aten::mul(%a, %b)
  %y : Tensor = aten::mul(%ab, %c)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::mul(%dy, %c)
  %d2 : Tensor = aten::mul(%d1, %b)
  %d3 : Tensor = aten::mul(%d2, %a)
  return (%y, %d3)
)"),
      {});
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("c_recomputed = aten::cos(x)", "d1 = aten::mul(dy, c_recomputed)",
                          "b_recomputed = aten::exp(x)", "d2 = aten::mul(d1, b_recomputed)",
                          "a_recomputed = aten::sin(x)", "d3 = aten::mul(d2, a_recomputed)"));
}

// One of two outputs of a node is saved, and its readers keep reading the saved one.
TEST_F(Splice, TheSavedOutputOfTwoIsRead) {
  const auto joint = spliced(
      test::parse_joint(
          {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %a : Tensor, %b : Tensor = aten::frexp(%x)
  %y : Tensor = aten::mul(%a, %b)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::mul(%dy, %a)
  %d2 : Tensor = aten::mul(%d1, %b)
  return (%y, %d2)
)"),
      {"a"});
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("d1 = aten::mul(dy, a)", "a_recomputed, b_recomputed = aten::frexp(x)",
                          "d2 = aten::mul(d1, b_recomputed)"));
}

TEST_F(Splice, ValuesThatAreNoTensorsAreAlwaysKept) {
  const auto joint = spliced(
      test::parse_joint(
          {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %false : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %h : Tensor = aten::sin(%x)
  %size : int[] = aten::size(%h)
  %y : Tensor = aten::sum(%h, %none)
  aten_recompute::backward_start()
  %dx : Tensor = aten::expand(%dy, %size, %false)
  return (%y, %dx)
)"),
      {});
  EXPECT_THAT(backward_listing(joint), ElementsAre("dx = aten::expand(dy, size, False)"));
  EXPECT_THAT(extract(joint).df_input_captured_outputs, ElementsAre(1));
}

// Outputs, and gradients that the forward already computed, live to the end whatever the plan says.
TEST_F(Splice, OutputsOfTheRegionAreKept) {
  const auto joint = spliced(
      test::parse_joint(
          {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0, 1}}, R"(
graph(%x : Tensor, %w : Tensor, %dy : Tensor):
  %a : Tensor = aten::sin(%x)
  %y : Tensor = aten::mul(%w, %a)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::mul(%dy, %a)
  %d2 : Tensor = aten::mul(%d1, %y)
  return (%y, %d2, %a)
)"),
      {});
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("d1 = aten::mul(dy, a)", "d2 = aten::mul(d1, y)"));
  EXPECT_EQ(joint.graph->outputs()[2]->debugName(), "a");
}

TEST_F(Splice, UsesInsideOfControlFlowReadTheCopy) {
  const auto joint = spliced(
      test::parse_joint(
          {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %flag : bool, %dy : Tensor):
  %a : Tensor = aten::sin(%x)
  %y : Tensor = aten::mul(%a, %a)
  aten_recompute::backward_start()
  %dx : Tensor = prim::If(%flag)
    block0():
      %inner : Tensor = aten::mul(%dy, %a)
      -> (%inner)
    block1():
      -> (%a)
  return (%y, %dx)
)"),
      {});
  auto* branch = find_nodes(*joint.graph, "prim::If").at(0);
  EXPECT_THAT(test::listing(*branch->blocks()[0]),
              ElementsAre("inner = aten::mul(dy, a_recomputed)"));
  EXPECT_THAT(test::names(branch->blocks()[1]->outputs()), ElementsAre("a_recomputed"));
}

// The copy stands before the outer node, and after nodes that do not need it.
TEST_F(Splice, ACopyForControlFlowStandsBeforeTheOuterNode) {
  const auto joint = spliced(
      test::parse_joint(
          {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %flag : bool, %dy : Tensor):
  %a : Tensor = aten::sin(%x)
  %y : Tensor = aten::mul(%a, %a)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::neg(%dy)
  %d2 : Tensor = prim::If(%flag)
    block0():
      %inner : Tensor = aten::mul(%d1, %a)
      -> (%inner)
    block1():
      -> (%d1)
  return (%y, %d2)
)"),
      {});
  EXPECT_THAT(
      backward_listing(joint),
      ElementsAre("d1 = aten::neg(dy)", "a_recomputed = aten::sin(x)", "d2 = prim::If(flag)"));
}

TEST_F(Splice, ARandomOperatorRunsAgainFromItsState) {
  auto joint = spliced(
      test::parse_joint(
          {.num_inputs = 1, .num_outputs = 2, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %n : Tensor = aten_recompute_test::noise(%x)
  %later : Tensor = aten_recompute_test::noise(%x)
  %y : Tensor = aten::abs(%n)
  aten_recompute::backward_start()
  %d : Tensor = aten::neg(%n)
  return (%y, %later, %d)
)"),
      {});
  EXPECT_THAT(forward_listing(joint),
              ElementsAre("random_state = aten_recompute::random_state(x)",
                          "n = aten_recompute_test::noise(x)",
                          "later = aten_recompute_test::noise(x)", "y = aten::abs(n)"));
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("n_recomputed = aten_recompute::replay_random(random_state, x)",
                          "d = aten::neg(n_recomputed)"));
  EXPECT_THAT(test::names(captured_values(joint)), ElementsAre("random_state"));
}

// A saved random value needs neither its state nor a copy.
TEST_F(Splice, ASavedRandomValueIsNotReplayed) {
  const auto joint = spliced(
      test::parse_joint(
          {.num_inputs = 1, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %dy : Tensor):
  %n : Tensor = aten_recompute_test::noise(%x)
  aten_recompute::backward_start()
  %d : Tensor = aten::mul(%dy, %n)
  return (%n, %d)
)"),
      {"n"});
  EXPECT_THAT(find_nodes(*joint.graph, "aten_recompute::random_state"), IsEmpty());
}

TEST_F(Splice, ARandomOperatorOnTapeIsReplayedWithItsTape) {
  const auto joint = spliced(differentiate(test::parse(R"(
graph(%x : Tensor):
  %n : Tensor = aten_recompute_test::noise(%x)
  return (%n)
)"),
                                           {true}, {true}),
                             {});
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("n_recomputed, tape_recomputed = "
                          "aten_recompute::replay_random(random_state, x)",
                          "$0 = aten_recompute::tape_backward(tape_recomputed, grad_0)"));
}

TEST_F(Splice, BatchNormIsReplayedWithoutItsRunningStatistics) {
  auto joint = spliced(
      test::parse_joint(
          {.num_inputs = 3, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %mean : Tensor, %var : Tensor, %dy : Tensor):
  %true : bool = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
  %momentum : float = prim::Constant[value=0.5]()
  %eps : float = prim::Constant[value=1e-5]()
  %y : Tensor, %m : Tensor, %s : Tensor, %r : Tensor, %i : int = aten::_batch_norm_impl_index(%x, %none, %none, %mean, %var, %true, %momentum, %eps, %true)
  %out : Tensor = aten::neg(%y)
  aten_recompute::backward_start()
  %d : Tensor = aten::neg(%y)
  return (%out, %d)
)"),
      {});
  EXPECT_EQ(recompute_veto(test::find_value(*joint.graph, "y")->node()), RecomputeVeto::kNone);
  EXPECT_EQ(joint.graph->outputs()[1]->node()->input(0)->debugName(), "y_recomputed");

  const auto x = at::randn({4, 3});
  const auto mean = at::zeros({3});
  const auto var = at::ones({3});
  const auto values = test::run_graph(joint.graph, {x, mean, var, x});
  EXPECT_TRUE(test::bitwise_equal(values[1].toTensor(), values[0].toTensor()));
  // One update: 0.5 * 0 + 0.5 * mean(x), not two.
  EXPECT_TRUE(at::allclose(mean, x.mean(0) * 0.5));
}

TEST_F(Splice, OperatorsThatUpdateStateWithoutAReplayAreKept) {
  const auto joint = spliced(
      test::parse_joint(
          {.num_inputs = 3, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %mean : Tensor, %var : Tensor, %dy : Tensor):
  %true : bool = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
  %momentum : float = prim::Constant[value=0.5]()
  %eps : float = prim::Constant[value=1e-5]()
  %y : Tensor = aten::instance_norm(%x, %none, %none, %mean, %var, %true, %momentum, %eps, %true)
  aten_recompute::backward_start()
  %d : Tensor = aten::mul(%dy, %y)
  return (%y, %d)
)"),
      {});
  EXPECT_THAT(backward_listing(joint), ElementsAre("d = aten::mul(dy, y)"));
  EXPECT_EQ(recompute_veto(test::find_value(*joint.graph, "y")->node()), RecomputeVeto::kMutates);
  EXPECT_STREQ(to_string(RecomputeVeto::kMutates), "writes to an argument");
}

TEST_F(Splice, SavingEverythingSavesBasesOfViews) {
  const auto joint = test::parse_joint(
      {.num_inputs = 2, .num_outputs = 1, .vjp_outputs = {0}, .gradient_inputs = {0}}, R"(
graph(%x : Tensor, %w : Tensor, %dy : Tensor):
  %h : Tensor = aten::sin(%x)
  %ht : Tensor = aten::t(%h)
  %wt : Tensor = aten::t(%w)
  %y : Tensor = aten::mm(%ht, %wt)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::mm(%dy, %wt)
  %d2 : Tensor = aten::mm(%ht, %d1)
  return (%y, %d2)
)");
  EXPECT_THAT(test::names(captured_values(joint)), ElementsAre("ht", "wt"));
  // wt is a view of an input, which is available in any case.
  EXPECT_THAT(test::saved_names(joint, save_everything(joint)), ElementsAre("h"));
}

}  // namespace
}  // namespace aten_recompute
