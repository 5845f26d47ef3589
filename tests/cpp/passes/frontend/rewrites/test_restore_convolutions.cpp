#include "passes/frontend/rewrites/restore_convolutions.h"

#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/testing/file_check.h>

#include <string>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using torch::jit::testing::FileCheck;

// A traced convolution with two numbers in each list.
std::string convolution(const std::string& transposed, const std::string& dilation) {
  return R"(
graph(%x : Tensor, %w : Tensor, %b : Tensor, %unknown : int[]):
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %yes : bool = prim::Constant[value=1]()
  %transposed : bool = prim::Constant[value=)" +
         transposed + R"(]()
  %stride : int[] = prim::ListConstruct(%two, %two)
  %padding : int[] = prim::ListConstruct(%one, %one)
  %ones : int[] = prim::ListConstruct(%one, %one)
  %output_padding : int[] = prim::ListConstruct(%one, %two)
  %y : Tensor = aten::_convolution(%x, %w, %b, %stride, %padding, )" +
         dilation + R"(, %transposed, %output_padding, %two, %yes, %yes, %yes, %yes)
  return (%y))";
}

std::string restored(const std::string& text) {
  const auto graph = test::parse(text);
  restore_convolutions(*graph);
  graph->lint();
  return graph->toString(/*print_source_locations=*/false);
}

TEST(RestoreConvolutions, ATracedConvolutionIsTheOperatorThatWasCalled) {
  FileCheck()
      .check("aten::conv2d(%x, %w, %b, %stride, %padding, %ones, %two)")
      ->check_not("_convolution")
      ->run(restored(convolution("0", "%ones")));
}

TEST(RestoreConvolutions, ATransposedOneHasItsOutputPaddingBeforeItsGroups) {
  FileCheck()
      .check("aten::conv_transpose2d(%x, %w, %b, %stride, %padding, %output_padding, %two, %ones)")
      ->run(restored(convolution("1", "%ones")));
}

TEST(RestoreConvolutions, PaddingMayBeAWord) {
  FileCheck().check("aten::conv1d(%x, %w, %b, %ones, %same, %ones, %one)")->run(restored(R"(
graph(%x : Tensor, %w : Tensor, %b : Tensor):
  %one : int = prim::Constant[value=1]()
  %same : str = prim::Constant[value="same"]()
  %ones : int[] = prim::ListConstruct(%one)
  %y : Tensor = aten::_convolution_mode(%x, %w, %b, %ones, %same, %ones, %one)
  return (%y))"));
}

TEST(RestoreConvolutions, UnknownDimensionsAreLeftAlone) {
  FileCheck().check("aten::_convolution(")->run(restored(convolution("0", "%unknown")));
}

}  // namespace
}  // namespace aten_recompute
