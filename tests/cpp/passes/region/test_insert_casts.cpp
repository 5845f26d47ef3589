#include "passes/region/insert_casts.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/testing/file_check.h>

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
    const auto result = insert_casts(*test::parse(text), inputs, AutocastState::current());
    result->lint();
    return result->toString(/*print_source_locations=*/false);
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

TEST_F(InsertCasts, AnOperatorThatIsComposedOfCastingOnesIsRefused) {
  EXPECT_THROW(casts_in(R"(
graph(%x : Tensor, %w : Tensor):
  %equation : str = prim::Constant[value="ij,jk->ik"]()
  %path : NoneType = prim::Constant()
  %list : Tensor[] = prim::ListConstruct(%x, %w)
  %y : Tensor = aten::einsum(%equation, %list, %path)
  return (%y))",
                        {at::randn({4, 4}), parameter()}),
               NotDifferentiable);
}

TEST_F(InsertCasts, SizesThatDataDecideAreRefused) {
  EXPECT_THROW(casts_in(R"(
graph(%x : Tensor):
  %y : Tensor = aten::nonzero(%x)
  return (%y))",
                        {at::randn({4, 4})}),
               NotDifferentiable);
}

TEST_F(InsertCasts, NothingStaysInAutocastsCache) {
  const auto w = parameter();
  casts_in(kTwoProducts, {at::randn({4, 4}), w});
  EXPECT_TRUE(at::mm(at::randn({4, 4}), w).requires_grad());
  at::autocast::clear_cache();
}

}  // namespace
}  // namespace aten_recompute
