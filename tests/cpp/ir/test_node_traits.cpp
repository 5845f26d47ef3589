#include "ir/node_names.h"
#include "ir/node_traits.h"

#include <torch/csrc/jit/frontend/source_range.h>
#include <torch/csrc/jit/ir/ir.h>

#include "tests/cpp/support/operator_node.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_nodes;
using test::find_value;
using test::OperatorNode;
using ::testing::ElementsAre;

class NodeTraits : public test::TorchTest {};

// ---- names ----

TEST_F(NodeTraits, AnOperatorIsNamedWithItsOverload) {
  EXPECT_EQ(qualified_operator_name(OperatorNode("aten::mul.Tensor")), "aten::mul.Tensor");
  EXPECT_EQ(qualified_operator_name(OperatorNode("aten::relu")), "aten::relu");
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %t : (Tensor, Tensor) = prim::TupleConstruct(%x, %x)
  return (%t)
)");
  EXPECT_EQ(qualified_operator_name(find_value(*graph, "t")->node()), "prim::TupleConstruct");
}

TEST_F(NodeTraits, ALocationIsFileAndLine) {
  const OperatorNode node("aten::relu");
  EXPECT_EQ(location_of(node), "");
  const auto source = std::make_shared<torch::jit::Source>("first\nsecond\n", "model.py", 11);
  node->setSourceRange(torch::jit::SourceRange(source, 6, 12));
  EXPECT_EQ(location_of(node), "model.py:12");
}

// ---- memory ----

TEST_F(NodeTraits, OperatorsThatWriteInPlaceOrToAnOutputMutateAnArgument) {
  EXPECT_TRUE(mutates_an_argument(OperatorNode("aten::relu_")));
  EXPECT_TRUE(mutates_an_argument(OperatorNode("aten::add.out")));
  EXPECT_FALSE(mutates_an_argument(OperatorNode("aten::relu")));
}

TEST_F(NodeTraits, AViewAliasesAndACopyDoesNot) {
  EXPECT_TRUE(is_pure_view(OperatorNode("aten::t")));
  EXPECT_TRUE(may_alias_an_argument(OperatorNode("aten::t")));
  EXPECT_FALSE(is_pure_view(OperatorNode("aten::clone")));
  EXPECT_FALSE(may_alias_an_argument(OperatorNode("aten::clone")));
}

TEST_F(NodeTraits, WhatCopiesOnlyWhereItMustMayAliasButIsNoPureView) {
  for (const auto* name : {"aten::reshape", "aten::contiguous", "aten::to.dtype"}) {
    EXPECT_TRUE(may_alias_an_argument(OperatorNode(name))) << name;
    EXPECT_FALSE(is_pure_view(OperatorNode(name))) << name;
  }
}

TEST_F(NodeTraits, AnEinsumOfOneTensorMayBeAViewAndOneOfSeveralIsNot) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %y : Tensor):
  %none : NoneType = prim::Constant()
  %transpose : str = prim::Constant[value="ij->ji"]()
  %product : str = prim::Constant[value="ij,jk->ik"]()
  %one : Tensor[] = prim::ListConstruct(%x)
  %both : Tensor[] = prim::ListConstruct(%x, %y)
  %a : Tensor = aten::einsum(%transpose, %one, %none)
  %b : Tensor = aten::einsum(%product, %both, %none)
  return (%a, %b)
)");
  const auto* view = graph->outputs()[0]->node();
  const auto* product = graph->outputs()[1]->node();
  EXPECT_TRUE(may_alias_an_argument(view));
  EXPECT_FALSE(is_pure_view(view));
  EXPECT_FALSE(may_alias_an_argument(product));
  EXPECT_FALSE(is_pure_view(product));
}

TEST_F(NodeTraits, AnEinsumOfOneTensorThatSumsIsNoView) {
  const auto may_be_view = [](const std::string& equation) {
    const auto graph = test::parse(R"(
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %equation : str = prim::Constant[value=")" +
                                   equation + R"("]()
  %one : Tensor[] = prim::ListConstruct(%x)
  %a : Tensor = aten::einsum(%equation, %one, %none)
  return (%a)
)");
    return may_alias_an_argument(graph->outputs()[0]->node());
  };
  for (const auto* equation : {"ij->ji", "ii->i", "ji", "...i->i...", "...->"})
    EXPECT_TRUE(may_be_view(equation)) << equation;
  for (const auto* equation : {"ij->", "ij->j", "ii", "bii->b", "...i->...", "aB->a"})
    EXPECT_FALSE(may_be_view(equation)) << equation;
}

TEST_F(NodeTraits, AnOperatorThatWritesInPlaceIsNoView) {
  EXPECT_FALSE(may_alias_an_argument(OperatorNode("aten::relu_")));
  EXPECT_FALSE(is_pure_view(OperatorNode("aten::relu_")));
}

TEST_F(NodeTraits, OnlyOperatorsThatAllocateMakeANewTensor) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %b : bool):
  %size : int[] = aten::size(%x)
  %new : Tensor = aten::relu(%x)
  %view : Tensor = aten::t(%x)
  %copy : Tensor = aten::reshape(%x, %size)
  %written : Tensor = aten::relu_(%new)
  %branch : Tensor = prim::If(%b)
    block0():
      %inner : Tensor = aten::neg(%x)
      -> (%inner)
    block1():
      -> (%x)
  return (%branch)
)");
  auto makes_new = [&](const char* name) { return makes_new_tensor(find_value(*graph, name)); };
  EXPECT_TRUE(makes_new("new"));
  EXPECT_FALSE(makes_new("x"));
  EXPECT_FALSE(makes_new("view"));
  EXPECT_FALSE(makes_new("copy"));
  EXPECT_FALSE(makes_new("written"));
  EXPECT_FALSE(makes_new("branch"));
}

// ---- effects ----

TEST_F(NodeTraits, RandomOperatorsAreKnownByTagOrByTheTable) {
  EXPECT_TRUE(is_random(OperatorNode("aten::bernoulli")));               // tagged by PyTorch
  EXPECT_TRUE(is_random(OperatorNode("aten_recompute::dropout_mask")));  // in the table
  EXPECT_TRUE(is_random(OperatorNode("aten_recompute_test::noise")));    // tagged by its library
  EXPECT_FALSE(is_random(OperatorNode("aten::relu")));
}

TEST_F(NodeTraits, AnUntaggedOperatorOfAnotherLibraryMayBeRandom) {
  const OperatorNode foreign("aten_recompute_test::square");
  EXPECT_FALSE(is_random(foreign));
  EXPECT_TRUE(may_be_random(foreign));
  EXPECT_TRUE(may_be_random(OperatorNode("aten::bernoulli")));
  EXPECT_FALSE(may_be_random(OperatorNode("aten::relu")));
  EXPECT_FALSE(may_be_random(OperatorNode("aten_recompute::must_save")));
}

TEST_F(NodeTraits, BatchNormUpdatesHiddenStateThatIsStatisticsOnly) {
  EXPECT_TRUE(updates_hidden_state(OperatorNode("aten::batch_norm")));
  EXPECT_TRUE(updates_statistics_only(OperatorNode("aten::batch_norm")));
  EXPECT_FALSE(updates_hidden_state(OperatorNode("aten::layer_norm")));
  EXPECT_FALSE(updates_statistics_only(OperatorNode("aten::layer_norm")));
}

TEST_F(NodeTraits, OperatorsWithoutARuleMayRunAgain) {
  EXPECT_TRUE(may_run_again(OperatorNode("aten::relu")));
  EXPECT_TRUE(may_run_again(OperatorNode("aten::batch_norm")));
}

// ---- gradients ----

TEST_F(NodeTraits, ACastToAnIntegerTypeThatIsKnownHasNoGradient) {
  const auto graph = test::parse(R"(
graph(%x : Tensor, %given : int):
  %no : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %long : int = prim::Constant[value=4]()
  %float : int = prim::Constant[value=6]()
  %a : Tensor = aten::to(%x, %long, %no, %no, %none)
  %b : Tensor = aten::to(%x, %float, %no, %no, %none)
  %c : Tensor = aten::to(%x, %given, %no, %no, %none)
  return (%a, %b, %c)
)");
  EXPECT_TRUE(is_non_differentiable(find_value(*graph, "a")->node()));
  EXPECT_FALSE(is_non_differentiable(find_value(*graph, "b")->node()));
  EXPECT_FALSE(is_non_differentiable(find_value(*graph, "c")->node()));
}

TEST_F(NodeTraits, ComparisonsAndDetachHaveNoGradient) {
  EXPECT_TRUE(is_non_differentiable(OperatorNode("aten::gt.Tensor")));
  EXPECT_TRUE(is_non_differentiable(OperatorNode("aten::detach")));
  EXPECT_TRUE(is_non_differentiable(OperatorNode("aten::zeros_like")));
  EXPECT_FALSE(is_non_differentiable(OperatorNode("aten::mul.Tensor")));
}

TEST_F(NodeTraits, OutputsWithAGradientAreThoseOfDerivativesYaml) {
  auto differentiable = [](const char* name, size_t count) {
    const OperatorNode node(name);
    std::vector<bool> outputs;
    for (size_t i = 0; i < count; ++i)
      outputs.push_back(output_is_differentiable(node, i));
    return outputs;
  };
  EXPECT_THAT(differentiable("aten::sort", 2), ElementsAre(true, false));
  EXPECT_THAT(differentiable("aten::linalg_lstsq", 4), ElementsAre(true, true, false, false));
  EXPECT_THAT(differentiable("aten::linalg_lu", 3), ElementsAre(false, true, true));
  EXPECT_THAT(differentiable("aten::unbind.int", 1), ElementsAre(true));
}

TEST_F(NodeTraits, QuestionsToAutogradAndRunsOfItAreToldApart) {
  EXPECT_TRUE(asks_autograd(OperatorNode("aten::is_leaf")));
  EXPECT_FALSE(runs_autograd(OperatorNode("aten::is_leaf")));
  EXPECT_TRUE(runs_autograd(OperatorNode("aten::backward")));
  EXPECT_FALSE(asks_autograd(OperatorNode("aten::backward")));
}

// ---- operands ----

TEST_F(NodeTraits, OnlyTheFirstOperandOfALikeOperatorIsReadForItsMetadata) {
  const OperatorNode like("aten::new_full");
  EXPECT_TRUE(reads_metadata_only(like, 0));
  EXPECT_FALSE(reads_metadata_only(like, 2));
  EXPECT_FALSE(reads_metadata_only(OperatorNode("aten::relu"), 0));
}

// The subgraph's inputs are the last operands of the node.
TEST_F(NodeTraits, AnOperandOfASubgraphIsReadAsTheSubgraphReadsIt) {
  const auto graph = test::parse(R"(
graph(%state : Tensor, %x : Tensor, %y : Tensor):
  %z : Tensor = aten_recompute::replay_random(%state, %x, %y)
  return (%z)
)");
  auto* node = find_value(*graph, "z")->node();
  node->g_(c10::attr::Subgraph, test::parse(R"(
graph(%a : Tensor, %b : Tensor):
  %none : NoneType = prim::Constant()
  %r : Tensor = aten::rand_like(%a, %none, %none, %none, %none, %none)
  %c : Tensor = aten::mul(%r, %b)
  return (%c)
)"));
  EXPECT_FALSE(reads_metadata_only(node, 0));
  EXPECT_TRUE(reads_metadata_only(node, 1));
  EXPECT_FALSE(reads_metadata_only(node, 2));
}

// ---- structure ----

const char* const kLoop = R"(
graph(%x : Tensor, %n : int, %b : bool):
  %before : Tensor = aten::neg(%x)
  %y : Tensor = prim::Loop(%n, %b, %x)
    block0(%i : int, %carried : Tensor):
      %z : Tensor = prim::If(%b)
        block0():
          %inner : Tensor = aten::relu(%carried)
          -> (%inner)
        block1():
          -> (%carried)
      -> (%b, %z)
  return (%y)
)";

TEST_F(NodeTraits, ANodeInABranchInALoopIsInALoop) {
  const auto graph = test::parse(kLoop);
  EXPECT_TRUE(is_in_a_loop(find_nodes(*graph, "aten::relu").at(0)));
  EXPECT_FALSE(is_in_a_loop(find_nodes(*graph, "aten::neg").at(0)));
}

TEST_F(NodeTraits, NodesAreVisitedBeforeTheNodesInTheirBlocks) {
  const auto graph = test::parse(kLoop);
  std::vector<std::string> kinds;
  for_each_node(graph->block(), [&](const torch::jit::Node* node) {
    kinds.emplace_back(node->kind().toQualString());
  });
  EXPECT_THAT(kinds, ElementsAre("aten::neg", "prim::Loop", "prim::If", "aten::relu"));
}

TEST_F(NodeTraits, MarkersAndCastsAreKnown) {
  EXPECT_TRUE(is_marker(OperatorNode("aten_recompute::must_save")));
  EXPECT_FALSE(is_marker(OperatorNode("aten::alias")));
  EXPECT_TRUE(is_cast(OperatorNode("aten::_unwrap_optional")));
  EXPECT_FALSE(is_cast(OperatorNode("aten::to.dtype")));
}

// ---- types ----

TEST_F(NodeTraits, ATypeContainsATensorHoweverDeep) {
  const auto tensors = c10::ListType::ofTensors();
  EXPECT_TRUE(contains_tensor(*c10::TensorType::get()));
  EXPECT_TRUE(contains_tensor(*c10::TupleType::create({c10::IntType::get(), tensors})));
  EXPECT_TRUE(contains_tensor(*c10::DictType::create(c10::StringType::get(), tensors)));
  EXPECT_TRUE(contains_tensor(*c10::AnyType::get()));
  EXPECT_FALSE(contains_tensor(*c10::ListType::ofInts()));
}

TEST_F(NodeTraits, OnlyTensorAndOptionalTensorAreTensorTypes) {
  EXPECT_TRUE(is_tensor_type(*c10::TensorType::get()));
  EXPECT_TRUE(is_tensor_type(*c10::OptionalType::ofTensor()));
  EXPECT_FALSE(is_tensor_type(*c10::ListType::ofTensors()));
  EXPECT_FALSE(is_tensor_type(*c10::OptionalType::create(c10::IntType::get())));
}

}  // namespace
}  // namespace aten_recompute
