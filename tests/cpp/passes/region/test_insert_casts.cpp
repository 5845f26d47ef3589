#include "passes/region/insert_casts.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/testing/file_check.h>

#include <regex>

#include "passes/autodiff/not_differentiable.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using torch::jit::testing::FileCheck;

class InsertCasts : public test::TorchTest {
 protected:
  InsertCasts() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
  }
  ~InsertCasts() override { at::autocast::set_autocast_enabled(at::kCPU, false); }

  static std::string casts_in(const std::string& text, const std::vector<c10::IValue>& inputs) {
    const auto result = insert_casts(*test::parse(text), inputs, AutocastState::current()).graph;
    result->lint();
    return without_marks(*result);
  }

  // Casts that autocast keeps are marked, which is printed between name and operands.
  static std::string without_marks(const torch::jit::Graph& graph) {
    static const std::regex mark(R"(\[cached_cast=1\])");
    return std::regex_replace(graph.toString(/*print_source_locations=*/false), mark, "");
  }

  static at::Tensor parameter() { return at::randn({4, 4}).requires_grad_(); }
};

constexpr const char* kTwoProducts = R"(
graph(%x : Tensor, %w : Tensor):
  %y : Tensor = aten::mm(%x, %w)
  %z : Tensor = aten::mm(%y, %w)
  return (%z))";

TEST_F(InsertCasts, AParameterIsCastOnce) {
  const auto text = casts_in(kTwoProducts, {at::randn({4, 4}), parameter()});
  FileCheck().check_count("aten::to(%w", 1, /*exactly=*/true)->run(text);
  FileCheck().check_count("aten::to(", 2, /*exactly=*/true)->run(text);
}

TEST_F(InsertCasts, WithoutTheCacheEachOperatorCasts) {
  at::autocast::set_autocast_cache_enabled(false);
  const auto text = casts_in(kTwoProducts, {at::randn({4, 4}), parameter()});
  at::autocast::set_autocast_cache_enabled(true);
  FileCheck().check_count("aten::to(%w", 2, /*exactly=*/true)->run(text);
}

TEST_F(InsertCasts, OperandsInFloat64AreLeftAlone) {
  const auto options = at::TensorOptions().dtype(at::kDouble);
  const auto text =
      casts_in(kTwoProducts, {at::randn({4, 4}, options), at::randn({4, 4}, options)});
  FileCheck().check_not("aten::to(")->run(text);
}

TEST_F(InsertCasts, ElementsOfAListArePromoted) {
  const auto text = casts_in(R"(
graph(%x : Tensor, %w : Tensor):
  %dim : int = prim::Constant[value=0]()
  %y : Tensor = aten::mm(%x, %w)
  %list : Tensor[] = prim::ListConstruct(%y, %x)
  %z : Tensor = aten::cat(%list, %dim)
  return (%z))",
                             {at::randn({4, 4}), parameter()});
  FileCheck()
      .check("aten::mm(")
      ->check("aten::to(")
      ->check("prim::ListConstruct(")
      ->check("aten::cat(")
      ->run(text);
}

TEST_F(InsertCasts, OperandsThatAreOnlyMovedBeforeTheyAreCastAreCastBefore) {
  const auto text = casts_in(R"(
graph(%x : Tensor, %w : Tensor):
  %equation : str = prim::Constant[value="ij,jk->ik"]()
  %path : NoneType = prim::Constant()
  %list : Tensor[] = prim::ListConstruct(%x, %w)
  %y : Tensor = aten::einsum(%equation, %list, %path)
  return (%y))",
                             {at::randn({4, 4}), parameter()});
  FileCheck()
      .check_count("aten::to(", 2, /*exactly=*/true)
      ->check("prim::ListConstruct(")
      ->check("aten::einsum(")
      ->run(text);
}

TEST_F(InsertCasts, AnOperatorThatCastsOneOperandMoreThanOnceIsRefused) {
  EXPECT_THROW(casts_in(R"(
graph(%x : Tensor):
  %three : int = prim::Constant[value=3]()
  %y : Tensor = aten::linalg_matrix_power(%x, %three)
  return (%y))",
                        {at::randn({4, 4})}),
               NotDifferentiable);
}

TEST_F(InsertCasts, AnOperatorThatComputesBeforeItCastsIsRefused) {
  EXPECT_THROW(casts_in(R"(
graph(%x : Tensor, %w : Tensor):
  %none : NoneType = prim::Constant()
  %y : Tensor = aten::bilinear(%x, %x, %w, %none)
  return (%y))",
                        {at::randn({4, 4}), at::randn({2, 4, 4}).requires_grad_()}),
               NotDifferentiable);
}

// The forward runs once on the inputs.
TEST_F(InsertCasts, SizesThatDataDecideAreThoseOfTheCall) {
  const auto text = casts_in(R"(
graph(%x : Tensor, %w : Tensor):
  %zero : int = prim::Constant[value=0]()
  %where : Tensor = aten::nonzero(%x)
  %rows : Tensor = aten::select(%where, %zero, %zero)
  %some : Tensor = aten::index_select(%x, %zero, %rows)
  %y : Tensor = aten::mm(%some, %w)
  return (%y))",
                             {at::ones({4, 4}), parameter()});
  FileCheck()
      .check("aten::index_select(")
      ->check_count("aten::to(", 2, /*exactly=*/true)
      ->check("aten::mm(")
      ->run(text);
}

TEST_F(InsertCasts, SizesThatDataDecideAreRefusedOfDescribedTensors) {
  const auto graph = test::parse(R"(
graph(%x : Tensor):
  %y : Tensor = aten::nonzero(%x)
  return (%y))");
  const auto x = at::empty({4, 4}, at::TensorOptions().device(at::kMeta));
  EXPECT_THROW(insert_casts(*graph, {x}, AutocastState::current(), at::Device(at::kCPU)),
               NotDifferentiable);
}

// What the forward writes is a copy.
TEST_F(InsertCasts, TheRunHasNoEffects) {
  const auto buffer = at::zeros({4});
  const auto x = at::ones({4});
  casts_in(R"(
graph(%x : Tensor, %buffer : Tensor):
  %one : int = prim::Constant[value=1]()
  %where : Tensor = aten::nonzero(%x)
  %written : Tensor = aten::add_(%buffer, %x, %one)
  %y : Tensor = aten::neg(%where)
  return (%y))",
           {x, buffer});
  EXPECT_EQ(buffer.sum().item<float>(), 0.0F);
}

constexpr const char* kBlocks = R"(
graph(%x : Tensor, %w : Tensor):
  %none : NoneType = prim::Constant()
  %device : str = prim::Constant[value="cpu"]()
  %on : bool = prim::Constant[value=1]()
  %off : bool = prim::Constant[value=0]()
  %type : int = prim::Constant[value=15]()
  aten_recompute::enter_autocast(%device, %on, %type, %none)
  %a : Tensor = aten::mm(%x, %w)
  aten_recompute::enter_autocast(%device, %off, %type, %none)
  %b : Tensor = aten::mm(%x, %w)
  aten_recompute::exit_autocast()
  %c : Tensor = aten::mm(%a, %w)
  aten_recompute::exit_autocast()
  aten_recompute::enter_autocast(%device, %on, %type, %none)
  %d : Tensor = aten::mm(%a, %w)
  aten_recompute::exit_autocast()
  return (%b, %c, %d))";

TEST_F(InsertCasts, BlocksSayWhatIsCastAndAreRemoved) {
  at::autocast::set_autocast_enabled(at::kCPU, false);
  const auto text = casts_in(kBlocks, {at::randn({4, 4}), parameter()});
  FileCheck().check_count("aten::to(%w", 2, /*exactly=*/true)->run(text);
  FileCheck().check_count("aten::mm(%x, %w)", 1, /*exactly=*/true)->run(text);
  FileCheck().check_not("_autocast")->run(text);
}

TEST_F(InsertCasts, ABlockWithoutTheCacheCastsAnewAtEachUse) {
  const auto text = casts_in(R"(
graph(%x : Tensor, %w : Tensor):
  %device : str = prim::Constant[value="cpu"]()
  %on : bool = prim::Constant[value=1]()
  %off : bool = prim::Constant[value=0]()
  %type : int = prim::Constant[value=15]()
  %none : NoneType = prim::Constant()
  aten_recompute::enter_autocast(%device, %on, %type, %off)
  %a : Tensor = aten::mm(%x, %w)
  aten_recompute::enter_autocast(%device, %on, %type, %none)
  %b : Tensor = aten::mm(%a, %w)
  aten_recompute::exit_autocast()
  aten_recompute::exit_autocast()
  return (%b))",
                             {at::randn({4, 4}), parameter()});
  FileCheck().check_count("aten::to(%w", 2, /*exactly=*/true)->run(text);
}

TEST_F(InsertCasts, ABlockAroundTheRegionKeepsCastsFromBlockToBlock) {
  auto around = AutocastState::current();
  around.is_in_block = true;
  const std::vector<c10::IValue> inputs{at::randn({4, 4}), parameter()};
  const auto result = insert_casts(*test::parse(kBlocks), inputs, around);
  FileCheck().check_count("aten::to(%w", 1, /*exactly=*/true)->run(without_marks(*result.graph));
  EXPECT_EQ(result.shared, (SharedCasts{{1, at::kBFloat16}})) << "it is read in float32, too";
}

TEST_F(InsertCasts, ParametersWithOneCastAreToldWithItsType) {
  const std::vector<c10::IValue> inputs{at::randn({4, 4}), parameter()};
  const auto result = insert_casts(*test::parse(kTwoProducts), inputs, AutocastState::current());
  EXPECT_EQ(result.shared, (SharedCasts{{1, at::kBFloat16}}));
}

TEST_F(InsertCasts, OnlyTheCastThatAutocastKeepsIsMarked) {
  const auto forward = test::parse(R"(
graph(%x : Tensor, %w : Tensor):
  %double : int = prim::Constant[value=7]()
  %no : bool = prim::Constant[value=0]()
  %none : NoneType = prim::Constant()
  %y : Tensor = aten::mm(%x, %w)
  %z : Tensor = aten::to(%w, %double, %no, %no, %none)
  return (%y, %z))");
  const std::vector<c10::IValue> inputs{at::randn({4, 4}), parameter()};
  const auto result = insert_casts(*forward, inputs, AutocastState::current());
  EXPECT_EQ(result.shared, (SharedCasts{{1, at::kBFloat16}}));
  FileCheck().check_count("aten::to[cached_cast=1](%w", 1, /*exactly=*/true)->run(*result.graph);
  FileCheck().check_count("aten::to(%w", 1, /*exactly=*/true)->run(*result.graph);
}

TEST_F(InsertCasts, AConditionThatDataDecideNeedsNoCast) {
  const auto text = casts_in(R"(
graph(%x : Tensor, %w : Tensor):
  %y : Tensor = aten::mm(%x, %w)
  %large : bool = aten::Bool(%y)
  %small : bool = aten::__not__(%large)
  %z : Tensor = aten::mm(%y, %w)
  return (%z))",
                             {at::randn({4, 4}), parameter()});
  FileCheck().check_count("aten::to(", 2, /*exactly=*/true)->run(text);
}

TEST_F(InsertCasts, NothingStaysInAutocastsCache) {
  const auto w = parameter();
  casts_in(kTwoProducts, {at::randn({4, 4}), w});
  EXPECT_TRUE(at::mm(at::randn({4, 4}), w).requires_grad());
  at::autocast::clear_cache();
}

}  // namespace
}  // namespace aten_recompute
