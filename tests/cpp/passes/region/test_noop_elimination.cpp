#include "passes/region/noop_elimination.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/torch.h>

#include "ir/common_size.h"
#include "ir/symbols.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class NoopEliminationTest : public test::TorchTest {};

// Whether the only node of this kind has the attribute.
bool has_mark(const torch::jit::Graph& graph, const std::string& kind, c10::Symbol attribute) {
  return test::find_nodes(graph, kind).at(0)->hasAttribute(attribute);
}

// relu reads %y, mul and add read %x, so three gradients are summed.
std::string graph_with(const std::string& node) {
  return R"(
graph(%x : Tensor):
  %none : NoneType = prim::Constant()
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %double : int = prim::Constant[value=7]()
  %no : bool = prim::Constant[value=0]()
  %y : Tensor = )" +
         node + R"(
  %p : Tensor = aten::mul(%x, %x)
  %q : Tensor = aten::relu(%y)
  return (%p, %q)
)";
}

constexpr const char* kTo = "aten::to(%x, %double, %no, %no, %none)";
constexpr const char* kContiguous = "aten::contiguous(%x, %zero)";

TEST_F(NoopEliminationTest, ToIsDecidedByTheTypeOnceForAllSizes) {
  NoopElimination returned(test::parse(graph_with(kTo)));
  EXPECT_THAT(returned.find({torch::rand({2, 3}, at::kDouble)}), ElementsAre(true));
  EXPECT_THAT(returned.find({torch::rand({2, 3})}), ElementsAre(false));
  EXPECT_THAT(returned.find({torch::rand({5, 3}, at::kDouble).t()}), ElementsAre(true));
}

TEST_F(NoopEliminationTest, ContiguousIsDecidedByStrides) {
  NoopElimination returned(test::parse(graph_with(kContiguous)));
  EXPECT_THAT(returned.find({torch::rand({2, 3})}), ElementsAre(true));
  EXPECT_THAT(returned.find({torch::rand({2, 3}).t()}), ElementsAre(false));
  EXPECT_THAT(returned.find({torch::rand({1, 3}).t()}), ElementsAre(true));
}

TEST_F(NoopEliminationTest, FoldRemovesOperatorsThatReturnTheirArgument) {
  const NoopElimination returned(test::parse(graph_with(kTo)));
  EXPECT_THAT(test::listing(*returned.fold({true})),
              ElementsAre("p = aten::mul(x, x)", "q = aten::relu(x)"));
  EXPECT_EQ(test::listing(*returned.fold({false})).size(), 3);
}

// rms_norm multiplies its input and squares it, in single precision.
TEST_F(NoopEliminationTest, PartsReadTheArgumentItselfIfItHasTheirType) {
  NoopElimination returned(test::parse(R"(
graph(%x : Tensor):
  %eight : int = prim::Constant[value=8]()
  %shape : int[] = prim::ListConstruct(%eight)
  %none : NoneType = prim::Constant()
  %y : Tensor = aten::rms_norm(%x, %shape, %none, %none)
  return (%y)
)"));
  EXPECT_THAT(returned.find({torch::rand({2, 8})}), ElementsAre(true));
  EXPECT_THAT(returned.find({torch::rand({2, 8}, at::kDouble)}), ElementsAre(true));
  EXPECT_THAT(returned.find({torch::rand({2, 8}, at::kBFloat16)}), ElementsAre(false));
  EXPECT_TRUE(has_mark(*returned.fold({true}), "aten::rms_norm", symbols::kHasComputedType));
  EXPECT_FALSE(has_mark(*returned.fold({false}), "aten::rms_norm", symbols::kHasComputedType));
}

// cosine_similarity divides its operands and takes their norms, expanded to a common size.
TEST_F(NoopEliminationTest, PartsReadOperandsThemselvesThatHaveACommonSize) {
  NoopElimination returned(test::parse(R"(
graph(%x : Tensor, %y : Tensor):
  %one : int = prim::Constant[value=1]()
  %eps : float = prim::Constant[value=1e-08]()
  %z : Tensor = aten::cosine_similarity(%x, %y, %one, %eps)
  return (%z)
)"));
  EXPECT_THAT(returned.find({torch::rand({2, 8}), torch::rand({2, 8})}), ElementsAre(true));
  EXPECT_THAT(returned.find({torch::rand({2, 8}), torch::rand({1, 8})}), ElementsAre(false));
  EXPECT_THAT(returned.find({torch::rand({3, 2, 8}), torch::rand({2, 8})}), ElementsAre(false));
  EXPECT_TRUE(has_mark(*returned.fold({true}), "aten::cosine_similarity", kHasCommonSize));
  EXPECT_FALSE(has_mark(*returned.fold({false}), "aten::cosine_similarity", kHasCommonSize));
}

// With one name, or with two gradients, the order of the sum cannot change.
TEST_F(NoopEliminationTest, NothingIsTestedIfTheOrderOfSumsCannotChange) {
  NoopElimination one_name(test::parse(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h : Tensor = aten::neg(%x)
  %y : Tensor = aten::contiguous(%h, %zero)
  %p : Tensor = aten::mul(%y, %y)
  %q : Tensor = aten::relu(%y)
  return (%p, %q)
)"));
  EXPECT_THAT(one_name.find({torch::rand({2, 3})}), IsEmpty());
  NoopElimination two_reads(test::parse(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %h : Tensor = aten::neg(%x)
  %y : Tensor = aten::contiguous(%h, %zero)
  %p : Tensor = aten::sin(%h)
  %q : Tensor = aten::relu(%y)
  return (%p, %q)
)"));
  EXPECT_THAT(two_reads.find({torch::rand({2, 3})}), IsEmpty());
}

// The caller may read the input, too, as if c is returned beside c.to(torch.float64) * c.var(1).
TEST_F(NoopEliminationTest, AnInputThatIsReadOutsideTooIsTested) {
  NoopElimination of_input(test::parse(R"(
graph(%x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %y : Tensor = aten::contiguous(%x, %zero)
  %p : Tensor = aten::sin(%x)
  %q : Tensor = aten::relu(%y)
  return (%p, %q)
)"));
  EXPECT_THAT(of_input.find({torch::rand({2, 3})}), ElementsAre(true));
}

// Testing changes neither running statistics nor the random state.
TEST_F(NoopEliminationTest, TheTestHasNoSideEffects) {
  NoopElimination returned(test::parse(R"(
graph(%x : Tensor, %mean : Tensor, %var : Tensor):
  %none : NoneType = prim::Constant()
  %zero : int = prim::Constant[value=0]()
  %yes : bool = prim::Constant[value=1]()
  %half : float = prim::Constant[value=0.5]()
  %n : Tensor = aten::batch_norm(%x, %none, %none, %mean, %var, %yes, %half, %half, %yes)
  %d : Tensor = aten::dropout(%n, %half, %yes)
  %y : Tensor = aten::contiguous(%d, %zero)
  %p : Tensor = aten::mul(%d, %d)
  %q : Tensor = aten::relu(%y)
  return (%p, %q)
)"));
  const auto x = torch::rand({4, 3});
  const auto mean = torch::zeros({3});
  const auto state = at::globalContext().defaultGenerator(at::kCPU).get_state();
  EXPECT_THAT(returned.find({x, mean, torch::ones({3})}), ElementsAre(true));
  EXPECT_TRUE(mean.equal(torch::zeros({3})));
  EXPECT_TRUE(state.equal(at::globalContext().defaultGenerator(at::kCPU).get_state()));
}

// Sizes that depend on data do not follow from the sizes of inputs.
TEST_F(NoopEliminationTest, OperatorsThatDependOnDataAreNotFolded) {
  NoopElimination returned(test::parse(R"(
graph(%x : Tensor, %mask : Tensor):
  %zero : int = prim::Constant[value=0]()
  %s : Tensor = aten::masked_select(%x, %mask)
  %y : Tensor = aten::contiguous(%s, %zero)
  %p : Tensor = aten::mul(%s, %s)
  %q : Tensor = aten::relu(%y)
  return (%p, %q)
)"));
  EXPECT_THAT(returned.find({torch::rand({2}), torch::ones({2}, at::kBool)}), IsEmpty());
}

}  // namespace
}  // namespace aten_recompute
