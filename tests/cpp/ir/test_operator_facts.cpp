#include "ir/operator_facts.h"
#include "passes/autodiff/not_differentiable.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/operator.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "ir/node_traits.h"
#include "tests/cpp/support/operator_node.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::OperatorNode;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsSupersetOf;
using ::testing::Not;

class OperatorFactsTest : public test::TorchTest {};

std::string kind_of(const std::string& row) {
  return row.substr(0, row.find('.'));
}

// Returns how many overloads the row is about.
size_t num_overloads(const std::string& row) {
  const auto dot = row.find('.');
  const auto all = torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(kind_of(row)));
  return static_cast<size_t>(std::count_if(all.begin(), all.end(), [&](const auto& op) {
    return dot == std::string::npos || op->schema().overload_name() == row.substr(dot + 1);
  }));
}

// Returns a node of each overload in the table, where the types of arguments tell overloads apart.
const std::map<std::string, OperatorNode>& all_nodes() {
  static const auto nodes = [] {
    std::map<std::string, OperatorNode> result;
    for (const auto& row : operator_fact_rows()) {
      const auto kind = kind_of(row);
      for (const auto& op : torch::jit::getAllOperatorsFor(c10::Symbol::fromQualString(kind))) {
        const auto& overload = op->schema().overload_name();
        const auto name = overload.empty() ? kind : kind + "." + overload;
        try {
          result.emplace(name, OperatorNode(name));
        } catch (const std::out_of_range&) {
          continue;
        }
      }
    }
    return result;
  }();
  return nodes;
}

// ---- rows ----

// Rows whose operator is in no registry, and why they are right all the same.
const std::map<std::string, std::string> kRowsWithoutAnOperator{
    {"aten::bool", "TorchScript writes aten::to in its place; min_cut's default list has it"},
    {"aten::double", "as aten::bool"},
    {"aten::float", "as aten::bool"},
    {"aten::half", "as aten::bool"},
    {"aten::int", "as aten::bool"},
    {"aten::long", "as aten::bool"},
    {"aten::requires_grad", "TorchScript writes prim::requires_grad in its place"},
    {"aten::tolist", "TorchScript writes prim::tolist in its place"},
    {"prim::ListConstruct", "the interpreter runs it without a schema"},
    {"prim::ListUnpack", "the interpreter runs it without a schema"},
    {"prim::TupleConstruct", "the interpreter runs it without a schema"},
};

TEST_F(OperatorFactsTest, EveryRowNamesARegisteredOperator) {
  for (const auto& row : operator_fact_rows()) {
    const bool is_listed = kRowsWithoutAnOperator.count(row) != 0;
    EXPECT_EQ(num_overloads(row) == 0, is_listed) << row;
  }
}

TEST_F(OperatorFactsTest, NoRowIsWrittenTwice) {
  std::set<std::string> seen;
  for (const auto& row : operator_fact_rows())
    EXPECT_TRUE(seen.insert(row).second) << row;
}

// ---- facts ----

struct FactCase {
  std::string name;
  Fact fact;
  std::string with;
  std::string without;
};

std::ostream& operator<<(std::ostream& stream, const FactCase& each) {
  return stream << each.name;
}

class EachFact : public test::TorchTest, public ::testing::WithParamInterface<FactCase> {};

TEST_P(EachFact, HoldsForOperatorsThatHaveItOnly) {
  EXPECT_TRUE(has_fact(OperatorNode(GetParam().with), GetParam().fact)) << GetParam().with;
  EXPECT_FALSE(has_fact(OperatorNode(GetParam().without), GetParam().fact)) << GetParam().without;
}

INSTANTIATE_TEST_SUITE_P(
    OperatorFacts, EachFact,
    ::testing::Values(
        FactCase{"MayCopy", Fact::kMayCopy, "aten::reshape", "aten::view"},
        FactCase{"ReturnsArgumentOfSameType", Fact::kReturnsArgumentOfSameType, "aten::to.dtype",
                 "aten::contiguous"},
        FactCase{"ReturnsArgumentOfSameLayout", Fact::kReturnsArgumentOfSameLayout,
                 "aten::contiguous", "aten::to.dtype"},
        FactCase{"MayCopyOnlyElement", Fact::kMayCopyOnlyElement, "aten::einsum", "aten::cat"},
        FactCase{"MovesValues", Fact::kMovesValues, "aten::__getitem__.t", "aten::cat"},
        FactCase{"Cast", Fact::kCast, "aten::_unwrap_optional", "aten::to.dtype"},
        FactCase{"Marker", Fact::kMarker, "aten_recompute::must_save", "aten::alias"},
        FactCase{"NotDifferentiable", Fact::kNotDifferentiable, "aten::argmax", "aten::max.dim"},
        FactCase{"OnlyFirstOutputDifferentiable", Fact::kOnlyFirstOutputDifferentiable,
                 "aten::topk", "aten::linalg_lu"},
        FactCase{"OnlyFirstTwoOutputsDifferentiable", Fact::kOnlyFirstTwoOutputsDifferentiable,
                 "aten::linalg_lstsq", "aten::topk"},
        FactCase{"FirstOutputNotDifferentiable", Fact::kFirstOutputNotDifferentiable,
                 "aten::linalg_lu", "aten::topk"},
        FactCase{"DiffersInPlace", Fact::kDiffersInPlace, "aten::elu_", "aten::elu"},
        FactCase{"Random", Fact::kRandom, "aten_recompute::dropout_mask", "aten::relu"},
        FactCase{"UpdatesStatistics", Fact::kUpdatesStatistics, "aten::batch_norm",
                 "aten::layer_norm"},
        FactCase{"ReadsWhatMayChange", Fact::kReadsWhatMayChange, "aten_recompute::snapshot",
                 "aten::clone"},
        FactCase{"AsksAutograd", Fact::kAsksAutograd, "aten::is_leaf", "aten::size"},
        FactCase{"RunsAutograd", Fact::kRunsAutograd, "aten::backward", "aten::is_leaf"},
        FactCase{"Dropout", Fact::kDropout, "aten::dropout", "aten::native_dropout"},
        FactCase{"ReadsMetadataOnly", Fact::kReadsMetadataOnly, "aten::zeros_like", "aten::clone"},
        FactCase{"ReadsMetadataOfSecond", Fact::kReadsMetadataOfSecond, "aten::view_as",
                 "aten::view"},
        FactCase{"ReadsData", Fact::kReadsData, "aten::item", "aten::size"},
        FactCase{"KnownFromMetadata", Fact::kKnownFromMetadata, "aten::size", "aten::item"},
        FactCase{"KnownFromRealTensor", Fact::kKnownFromRealTensor, "aten_recompute::sizes",
                 "aten::size"},
        FactCase{"ComputesWithSizes", Fact::kComputesWithSizes, "aten::floor_divide", "aten::mm"},
        FactCase{"KeepsRank", Fact::kKeepsRank, "aten::relu", "aten::unsqueeze"},
        FactCase{"BroadcastsRanks", Fact::kBroadcastsRanks, "aten::add.Tensor", "aten::relu"},
        FactCase{"Cheap", Fact::kCheap, "aten::sum", "aten::mm"},
        FactCase{"ComputeIntensive", Fact::kComputeIntensive, "aten::mm", "aten::sum"},
        FactCase{"KeepsOrder", Fact::kKeepsOrder, "aten::slice.Tensor", "aten::permute"},
        FactCase{"MakesOrder", Fact::kMakesOrder, "aten::matmul", "aten::einsum"},
        FactCase{"Concatenates", Fact::kConcatenates, "aten::cat", "aten::stack"}),
    [](const auto& info) { return info.param.name; });

TEST_F(OperatorFactsTest, AnOperatorWithoutARowHasNoFacts) {
  const auto& facts = operator_facts(OperatorNode("aten::trunc"));
  EXPECT_EQ(facts.facts, 0U);
  EXPECT_EQ(facts.flops, FlopFormula::kPerElement);
  EXPECT_FALSE(facts.overwriting.has_value());
}

// Where only some outputs have a gradient, an overload must have others.
TEST_F(OperatorFactsTest, RowsAboutOutputsNameOperatorsWithThatManyOutputs) {
  std::map<std::string, size_t> most_outputs;
  for (const auto& [name, node] : all_nodes()) {
    auto& most = most_outputs[kind_of(name)];
    most = std::max(most, node->outputs().size());
  }
  const std::map<Fact, size_t> fewest{{Fact::kOnlyFirstOutputDifferentiable, 2},
                                      {Fact::kFirstOutputNotDifferentiable, 2},
                                      {Fact::kOnlyFirstTwoOutputsDifferentiable, 3}};
  for (const auto& [fact, count] : fewest) {
    for (const auto& name : operators_with(fact))
      EXPECT_GE(most_outputs["aten::" + name], count) << name;
  }
}

TEST_F(OperatorFactsTest, FactsAboutTheFirstOperandNameOperatorsThatReadATensor) {
  std::set<std::string> read_tensors;
  for (const auto& [name, node] : all_nodes()) {
    if (!node->inputs().empty() && is_tensor_type(*node->input(0)->type()))
      read_tensors.insert(kind_of(name));
  }
  for (const auto& [name, reason] : kRowsWithoutAnOperator)
    read_tensors.insert(name);
  for (const auto fact : {Fact::kReturnsArgumentOfSameType, Fact::kReturnsArgumentOfSameLayout,
                          Fact::kReadsMetadataOnly, Fact::kKeepsRank, Fact::kBroadcastsRanks}) {
    for (const auto& name : operators_with(fact)) {
      const bool is_ours = name.find("::") != std::string::npos;
      EXPECT_EQ(read_tensors.count(is_ours ? name : "aten::" + name), 1U) << name;
    }
  }
}

// ---- overloads ----

TEST_F(OperatorFactsTest, ARowOfAnOverloadAddsToTheRowOfTheOperator) {
  const OperatorNode padded("aten::gru.input");
  const OperatorNode packed("aten::gru.data");
  EXPECT_TRUE(has_fact(padded, Fact::kRandom));
  EXPECT_TRUE(has_fact(packed, Fact::kRandom));
  EXPECT_FALSE(has_fact(padded, Fact::kReadsData));
  EXPECT_TRUE(has_fact(packed, Fact::kReadsData));
}

TEST_F(OperatorFactsTest, ARowThatEndsInADotIsAboutTheOverloadWithoutAName) {
  EXPECT_TRUE(has_fact(OperatorNode("aten::where"), Fact::kReadsData));
  EXPECT_FALSE(has_fact(OperatorNode("aten::where.self"), Fact::kReadsData));
}

// ---- FLOPs ----

TEST_F(OperatorFactsTest, FormulasForFlopsFollowTheRow) {
  EXPECT_EQ(operator_facts(OperatorNode("aten::mm")).flops, FlopFormula::kProduct);
  EXPECT_EQ(operator_facts(OperatorNode("aten::addmm")).flops, FlopFormula::kProductPlusBias);
  EXPECT_EQ(operator_facts(OperatorNode("aten::conv2d")).flops, FlopFormula::kConvolution);
  EXPECT_EQ(operator_facts(OperatorNode("aten::conv_transpose2d.input")).flops,
            FlopFormula::kTransposedConvolution);
  EXPECT_EQ(operator_facts(OperatorNode("aten::convolution_backward")).flops,
            FlopFormula::kConvolutionBackward);
  EXPECT_EQ(operator_facts(OperatorNode("aten::scaled_dot_product_attention")).flops,
            FlopFormula::kAttention);
  EXPECT_EQ(operator_facts(OperatorNode("aten_recompute::attention_backward")).flops,
            FlopFormula::kAttentionBackward);
  EXPECT_EQ(operator_facts(OperatorNode("aten::relu")).flops, FlopFormula::kPerElement);
}

// ---- overwriting ----

TEST_F(OperatorFactsTest, AnInPlaceFormIsTheOperatorWithAnUnderscore) {
  const OperatorNode relu("aten::relu");
  const auto* form = overwriting_form(relu);
  ASSERT_NE(form, nullptr);
  EXPECT_EQ(form->writer, "aten::relu_");
  EXPECT_EQ(form->overload, "");
  EXPECT_FALSE(form->takes_output);
  EXPECT_THAT(form->operands, ElementsAre(0));
  EXPECT_EQ(form->condition, ReuseCondition::kTensorsAgree);
}

TEST_F(OperatorFactsTest, OverloadsHaveFormsOfTheirOwn) {
  const OperatorNode tensors("aten::add.Tensor");
  const auto* to_output = overwriting_form(tensors);
  ASSERT_NE(to_output, nullptr);
  EXPECT_EQ(to_output->writer, "aten::add");
  EXPECT_EQ(to_output->overload, "out");
  EXPECT_TRUE(to_output->takes_output);
  EXPECT_THAT(to_output->operands, ElementsAre(0, 1));

  const OperatorNode scalar("aten::add.Scalar");
  const auto* in_place = overwriting_form(scalar);
  ASSERT_NE(in_place, nullptr);
  EXPECT_EQ(in_place->writer, "aten::add_");
  EXPECT_EQ(in_place->overload, "Scalar");
  EXPECT_EQ(in_place->condition, ReuseCondition::kScalarsAgree);
}

TEST_F(OperatorFactsTest, AFormMayNameAnotherOperator) {
  const OperatorNode elu("aten_recompute::elu_in_place");
  ASSERT_NE(overwriting_form(elu), nullptr);
  EXPECT_EQ(overwriting_form(elu)->writer, "aten::elu_");
}

TEST_F(OperatorFactsTest, AnOperatorThatLooksForAFreeOperandItselfHasNoWriter) {
  const OperatorNode sum("aten_recompute::accumulate");
  ASSERT_NE(overwriting_form(sum), nullptr);
  EXPECT_EQ(overwriting_form(sum)->writer, "");
  EXPECT_EQ(overwriting_form(sum)->condition, ReuseCondition::kSumsAgree);
}

TEST_F(OperatorFactsTest, OtherOverloadsOfAnOperatorHaveNoForm) {
  EXPECT_EQ(overwriting_form(OperatorNode("aten::add.out")), nullptr);
  EXPECT_EQ(overwriting_form(OperatorNode("aten::relu.out")), nullptr);
  EXPECT_EQ(overwriting_form(OperatorNode("aten::masked_fill.Tensor")), nullptr);
  EXPECT_EQ(overwriting_form(OperatorNode("aten::mm")), nullptr);
}

TEST_F(OperatorFactsTest, EveryWriterExistsAndTakesTheOperandsOfItsOperator) {
  size_t num_writers = 0;
  for (const auto& [name, node] : all_nodes()) {
    const auto* form = overwriting_form(node);
    if (form == nullptr)
      continue;
    for (const auto operand : form->operands) {
      ASSERT_LT(operand, node->inputs().size()) << name;
      EXPECT_TRUE(is_tensor_type(*node->input(operand)->type())) << name << " " << operand;
    }
    if (form->writer.empty())
      continue;
    ++num_writers;
    const OperatorNode writer(form->overload.empty() ? form->writer
                                                     : form->writer + "." + form->overload);
    EXPECT_TRUE(mutates_an_argument(writer)) << form->writer;
    EXPECT_EQ(writer->inputs().size(), node->inputs().size() + (form->takes_output ? 1 : 0))
        << name;
  }
  EXPECT_GT(num_writers, 30U);
}

// ---- lists of operators ----

TEST_F(OperatorFactsTest, OperatorsWithAFactAreSortedAndNamedAsInPython) {
  EXPECT_THAT(operators_with(Fact::kDropout),
              ElementsAre("alpha_dropout", "aten_recompute::dropout_in_place", "dropout",
                          "feature_alpha_dropout", "feature_dropout"));
  EXPECT_THAT(operators_with(Fact::kMarker),
              ElementsAre("aten_recompute::mark_layer", "aten_recompute::must_recompute",
                          "aten_recompute::must_save", "aten_recompute::prefer_recompute",
                          "aten_recompute::prefer_save"));
}

TEST_F(OperatorFactsTest, OverloadsAreInNoListOfOperators) {
  const auto names = operators_with(Fact::kReadsData);
  EXPECT_THAT(names, IsSupersetOf({"item", "nonzero_numpy"}));
  EXPECT_THAT(names, Not(Contains("gru")));
}

TEST_F(OperatorFactsTest, BackwardsOfViewsOfAllElementsAreKnownByName) {
  EXPECT_TRUE(is_backward_of_whole_view("ViewBackward0"));
  EXPECT_FALSE(is_backward_of_whole_view("SliceBackward0"));
  EXPECT_FALSE(is_backward_of_whole_view("MulBackward0"));
}

}  // namespace
}  // namespace aten_recompute
