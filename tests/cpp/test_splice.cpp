#include "passes/splice.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/differentiate.h"
#include "passes/symbols.h"
#include "tests/cpp/testing.h"

namespace aten_recompute {
namespace {

using test::backward_listing;
using test::find_nodes;
using test::forward_listing;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class Splice : public test::TorchTest {};

// h = mm(x, w), a = relu(h), y = sigmoid(a)
JointGraph chain() {
  return test::parse_joint(R"(
graph(%x : Tensor, %w : Tensor, %dy : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h : Tensor = aten::mm(%x, %w)
  %a : Tensor = aten::relu(%h)
  %y : Tensor = aten::sigmoid(%a)
  aten_recompute::backward_start()
  %da : Tensor = aten::sigmoid_backward(%dy, %y)
  %dh : Tensor = aten::threshold_backward(%da, %a, %zero)
  %xt : Tensor = aten::t(%x)
  %dw : Tensor = aten::mm(%xt, %dh)
  return (%y, %dw)
)",
                           2, 1, {0}, {1});
}

// y = exp(h) * cos(h), with h = sin(x)
JointGraph branches() {
  return test::parse_joint(R"(
graph(%x : Tensor, %dy : Tensor):
  %h : Tensor = aten::sin(%x)
  %b : Tensor = aten::exp(%h)
  %c : Tensor = aten::cos(%h)
  %y : Tensor = aten::mul(%b, %c)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::mul(%dy, %b)
  %d2 : Tensor = aten::mul(%d1, %c)
  return (%y, %d2)
)",
                           1, 1, {0}, {0});
}

JointGraph spliced(JointGraph joint, const std::vector<std::string>& saved) {
  splice(joint, test::plan_of(joint, saved));
  joint.graph->lint();
  return joint;
}

TEST_F(Splice, WithNothingSavedTheWholeChainIsCopied) {
  const auto joint = spliced(chain(), {});
  EXPECT_THAT(forward_listing(joint),
              ElementsAre("h = aten::mm(x, w)", "a = aten::relu(h)", "y = aten::sigmoid(a)"));
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

TEST_F(Splice, EverythingSavedIsNoChange) {
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
    if (node->hasAttribute(symbols::kRecomputed)) {
      marked.push_back(node->output(0)->debugName());
    }
  }
  EXPECT_THAT(marked, ElementsAre("y_recomputed"));
}

// b reads h as c does: h is copied once.
TEST_F(Splice, BothBranchesReadOneCopy) {
  const auto joint = spliced(branches(), {});
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("h_recomputed = aten::sin(x)", "b_recomputed = aten::exp(h_recomputed)",
                          "c_recomputed = aten::cos(h_recomputed)",
                          "d1 = aten::mul(dy, b_recomputed)", "d2 = aten::mul(d1, c_recomputed)"));
}

TEST_F(Splice, OneBranchSavedTheOtherCopied) {
  const auto joint = spliced(branches(), {"b"});
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("h_recomputed = aten::sin(x)", "c_recomputed = aten::cos(h_recomputed)",
                          "d1 = aten::mul(dy, b)", "d2 = aten::mul(d1, c_recomputed)"));
}

// Of a node with two outputs one is saved: readers of it go on reading it.
TEST_F(Splice, TheSavedOneOfTwoOutputsIsRead) {
  const auto joint = spliced(test::parse_joint(R"(
graph(%x : Tensor, %dy : Tensor):
  %a : Tensor, %b : Tensor = aten_recompute_test::pair(%x)
  %y : Tensor = aten::mul(%a, %b)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::mul(%dy, %a)
  %d2 : Tensor = aten::mul(%d1, %b)
  return (%y, %d2)
)",
                                               1, 1, {0}, {0}),
                             {"a"});
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("a_recomputed, b_recomputed = aten_recompute_test::pair(x)",
                          "d1 = aten::mul(dy, a)", "d2 = aten::mul(d1, b_recomputed)"));
}

TEST_F(Splice, ValuesThatAreNoTensorsAreAlwaysKept) {
  const auto joint = spliced(test::parse_joint(R"(
graph(%x : Tensor, %dy : Tensor):
  %false : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %h : Tensor = aten::sin(%x)
  %size : int[] = aten::size(%h)
  %y : Tensor = aten::sum(%h, %none)
  aten_recompute::backward_start()
  %dx : Tensor = aten::expand(%dy, %size, %false)
  return (%y, %dx)
)",
                                               1, 1, {0}, {0}),
                             {});
  EXPECT_THAT(backward_listing(joint), ElementsAre("dx = aten::expand(dy, size, False)"));
  EXPECT_THAT(extract(joint).df_input_captured_outputs, ElementsAre(1));
}

TEST_F(Splice, UsesInsideOfControlFlowReadTheCopy) {
  const auto joint = spliced(test::parse_joint(R"(
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
)",
                                               2, 1, {0}, {0}),
                             {});
  auto* branch = find_nodes(*joint.graph, "prim::If").at(0);
  EXPECT_THAT(test::listing(*branch->blocks()[0]),
              ElementsAre("inner = aten::mul(dy, a_recomputed)"));
  EXPECT_THAT(test::names(branch->blocks()[1]->outputs()), ElementsAre("a_recomputed"));
}

TEST_F(Splice, ARandomOperatorRunsAgainFromItsState) {
  auto joint = spliced(test::parse_joint(R"(
graph(%x : Tensor, %dy : Tensor):
  %n : Tensor = aten_recompute_test::noise(%x)
  %later : Tensor = aten_recompute_test::noise(%x)
  aten_recompute::backward_start()
  %d : Tensor = aten::neg(%n)
  return (%n, %later, %d)
)",
                                         1, 2, {0}, {0}),
                       {});
  EXPECT_THAT(forward_listing(joint), ElementsAre("random_state = aten_recompute::random_state(x)",
                                                  "n = aten_recompute_test::noise(x)",
                                                  "later = aten_recompute_test::noise(x)"));
  EXPECT_THAT(backward_listing(joint),
              ElementsAre("n_recomputed = aten_recompute::replay_random(random_state, x)",
                          "d = aten::neg(n_recomputed)"));
  EXPECT_THAT(test::names(captured_values(joint)), ElementsAre("random_state"));
}

// A saved random value needs neither its state nor a copy.
TEST_F(Splice, ASavedRandomValueIsNotReplayed) {
  const auto joint = spliced(test::parse_joint(R"(
graph(%x : Tensor, %dy : Tensor):
  %n : Tensor = aten_recompute_test::noise(%x)
  aten_recompute::backward_start()
  %d : Tensor = aten::mul(%dy, %n)
  return (%n, %d)
)",
                                               1, 1, {0}, {0}),
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
  auto joint = spliced(test::parse_joint(R"(
graph(%x : Tensor, %mean : Tensor, %var : Tensor, %dy : Tensor):
  %true : bool = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
  %momentum : float = prim::Constant[value=0.5]()
  %eps : float = prim::Constant[value=1e-5]()
  %y : Tensor, %m : Tensor, %s : Tensor, %r : Tensor, %i : int = aten::_batch_norm_impl_index(%x, %none, %none, %mean, %var, %true, %momentum, %eps, %true)
  aten_recompute::backward_start()
  %d : Tensor = aten::neg(%y)
  return (%y, %d)
)",
                                         3, 1, {0}, {0}),
                       {});
  EXPECT_EQ(recompute_veto(test::find_value(*joint.graph, "y")->node()), RecomputeVeto::kNone);
  EXPECT_EQ(joint.graph->outputs()[1]->node()->input(0)->debugName(), "y_recomputed");

  const auto x = at::randn({4, 3});
  const auto mean = at::zeros({3});
  const auto var = at::ones({3});
  const auto values = test::run_graph(joint.graph, {x, mean, var, x});
  EXPECT_TRUE(test::bitwise_equal(values[1].toTensor(), -values[0].toTensor()));
  // One update: 0.5 * 0 + 0.5 * mean(x), not two.
  EXPECT_TRUE(at::allclose(mean, x.mean(0) * 0.5));
}

TEST_F(Splice, WhatUpdatesHiddenStateWithoutAReplayIsKept) {
  const auto joint = spliced(test::parse_joint(R"(
graph(%x : Tensor, %mean : Tensor, %var : Tensor, %dy : Tensor):
  %true : bool = prim::Constant[value=1]()
  %none : NoneType = prim::Constant()
  %momentum : float = prim::Constant[value=0.5]()
  %eps : float = prim::Constant[value=1e-5]()
  %y : Tensor = aten::instance_norm(%x, %none, %none, %mean, %var, %true, %momentum, %eps, %true)
  aten_recompute::backward_start()
  %d : Tensor = aten::mul(%dy, %y)
  return (%y, %d)
)",
                                               3, 1, {0}, {0}),
                             {});
  EXPECT_THAT(backward_listing(joint), ElementsAre("d = aten::mul(dy, y)"));
  EXPECT_EQ(recompute_veto(test::find_value(*joint.graph, "y")->node()), RecomputeVeto::kMutates);
  EXPECT_STREQ(to_string(RecomputeVeto::kMutates), "writes to an argument");
}

TEST_F(Splice, SavingEverythingSavesWhatAViewViews) {
  const auto joint = test::parse_joint(R"(
graph(%x : Tensor, %w : Tensor, %dy : Tensor):
  %h : Tensor = aten::sin(%x)
  %ht : Tensor = aten::t(%h)
  %wt : Tensor = aten::t(%w)
  %y : Tensor = aten::mm(%ht, %wt)
  aten_recompute::backward_start()
  %d1 : Tensor = aten::mm(%dy, %wt)
  %d2 : Tensor = aten::mm(%ht, %d1)
  return (%y, %d2)
)",
                                       2, 1, {0}, {0});
  EXPECT_THAT(test::names(captured_values(joint)), ElementsAre("ht", "wt"));
  // wt views an input, which is there anyway.
  EXPECT_THAT(test::saved_names(joint, save_everything(joint)), ElementsAre("h"));
}

}  // namespace
}  // namespace aten_recompute
