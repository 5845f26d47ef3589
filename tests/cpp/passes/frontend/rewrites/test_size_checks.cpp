#include "passes/frontend/rewrites/size_checks.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/ir/ir.h>

#include <stdexcept>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_nodes;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::CompilationUnit;
using torch::jit::Graph;

class SizeChecks : public test::TorchTest {};

// A check of torch/nn/functional.py: the product of %start and the sizes of the third and later
// dimensions must not be 1.
std::string check_from(const std::string& start) {
  return R"(
graph(%size : int[]):
  %none : NoneType = prim::Constant()
  %true : bool = prim::Constant[value=1]()
  %zero : int = prim::Constant[value=0]()
  %one : int = prim::Constant[value=1]()
  %two : int = prim::Constant[value=2]()
  %message : str = prim::Constant[value="too small"]()
  %first : int = aten::__getitem__(%size, %zero)
  %n : int = aten::len(%size)
  %trips : int = aten::sub(%n, %two)
  %product : int = prim::Loop(%trips, %true, )" +
         start + R"()
    block0(%i : int, %before : int):
      %j : int = aten::add(%i, %two)
      %factor : int = aten::__getitem__(%size, %j)
      %after : int = aten::mul(%before, %factor)
      -> (%true, %after)
  %is_one : bool = aten::eq(%product, %one)
  prim::If(%is_one)
    block0():
      prim::RaiseException(%message, %none)
      -> ()
    block1():
      -> ()
  return (%none)
)";
}

const std::string kFunctional = "__torch__.torch.nn.functional.";

// Returns the body of the function with this qualified name after the pass.
std::shared_ptr<Graph> shortened(const std::string& body, const std::string& qualified_name) {
  CompilationUnit unit;
  const auto& function = *unit.create_function(qualified_name, test::parse(body));
  auto graph = test::parse(body);
  shorten_size_check(function, graph->inputs()[0], graph->block()->param_node(),
                     graph->return_node());
  graph->lint();
  return graph;
}

std::shared_ptr<Graph> batch_check() {
  return shortened(check_from("%first"), kFunctional + "_verify_batch_size");
}

std::shared_ptr<Graph> spatial_check() {
  return shortened(check_from("%one"), kFunctional + "_verify_spatial_size");
}

bool raises(const std::shared_ptr<Graph>& graph, const std::vector<int64_t>& size) {
  try {
    test::run_graph(graph, {size});
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

TEST_F(SizeChecks, OneOperatorTakesThePlaceOfTheLoop) {
  const auto batch = batch_check();
  EXPECT_THAT(find_nodes(*batch, "prim::Loop"), IsEmpty());
  EXPECT_THAT(find_nodes(*batch, "aten_recompute::has_one_value_per_channel"), SizeIs(1));
  EXPECT_THAT(find_nodes(*batch, "prim::RaiseException"), SizeIs(1));
  const auto spatial = spatial_check();
  EXPECT_THAT(find_nodes(*spatial, "prim::Loop"), IsEmpty());
  EXPECT_THAT(find_nodes(*spatial, "aten_recompute::has_one_position"), SizeIs(1));
}

TEST_F(SizeChecks, TheErrorIsRaisedForTheSameSizes) {
  const auto batch = batch_check();
  const auto spatial = spatial_check();
  for (const auto& size : std::vector<std::vector<int64_t>>{
           {1, 3}, {2, 3}, {1, 3, 1, 1}, {1, 3, 2, 1}, {4, 3, 1, 1}, {1, 1, 5}, {0, 3, 1}}) {
    int64_t per_channel = size[0];
    int64_t positions = 1;
    for (size_t i = 2; i < size.size(); ++i) {
      per_channel *= size[i];
      positions *= size[i];
    }
    EXPECT_EQ(raises(batch, size), per_channel == 1) << ::testing::PrintToString(size);
    EXPECT_EQ(raises(spatial, size), positions == 1) << ::testing::PrintToString(size);
  }
}

TEST_F(SizeChecks, AFunctionOfTheSameNameElsewhereIsLeftAlone) {
  const auto graph = shortened(check_from("%first"), "__torch__.my_project._verify_batch_size");
  EXPECT_THAT(find_nodes(*graph, "prim::Loop"), SizeIs(1));
}

TEST_F(SizeChecks, AFunctionWithoutACheckIsLeftAlone) {
  const auto graph = shortened(R"(
graph(%size : int[], %x : Tensor):
  %zero : int = prim::Constant[value=0]()
  %true : bool = prim::Constant[value=1]()
  %product : int = prim::Loop(%zero, %true, %zero)
    block0(%i : int, %before : int):
      -> (%true, %before)
  return (%product)
)",
                               kFunctional + "_verify_batch_size");
  EXPECT_THAT(find_nodes(*graph, "prim::Loop"), SizeIs(1));
}

}  // namespace
}  // namespace aten_recompute
