#include "passes/region/cross_entropy_parts.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/ir.h>

#include "runtime/program.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class CrossEntropyParts : public test::TorchTest {};

std::shared_ptr<torch::jit::Graph> cross_entropy(const std::string& smoothing) {
  return test::parse(R"(
graph(%x : Tensor, %t : Tensor, %w : Tensor):
  %one : int = prim::Constant[value=1]()
  %ignored : int = prim::Constant[value=2]()
  %smoothing : float = prim::Constant[value=)" +
                     smoothing + R"(]()
  %loss : Tensor = aten::cross_entropy_loss(%x, %t, %w, %one, %ignored, %smoothing)
  return (%loss)
)");
}

at::Tensor loss_of(const std::shared_ptr<torch::jit::Graph>& graph,
                   const std::vector<c10::IValue>& inputs) {
  const Program program(graph);
  auto registers = program.start(inputs);
  program.run(registers, 0, program.instructions().size());
  return program.take_output(registers, 0).toTensor();
}

TEST_F(CrossEntropyParts, ComputeTheSame) {
  const std::vector<std::pair<at::Tensor, at::Tensor>> cases{
      {at::randn({6, 5}), at::randint(5, {6}, at::kLong)},
      {at::randn({5}), at::randint(2, {}, at::kLong)},
      {at::randn({2, 5, 3, 4}), at::randint(5, {2, 3, 4}, at::kLong)},
      {at::randn({6, 5}).to(at::kBFloat16), at::randint(5, {6}, at::kLong)},
  };
  for (const auto& [x, t] : cases) {
    const auto whole = cross_entropy("0.");
    const auto parts = whole->copy();
    const auto nodes = test::find_nodes(*parts, "aten::cross_entropy_loss");
    ASSERT_THAT(nodes, SizeIs(1));
    auto* const loss = take_cross_entropy_apart(nodes[0]);
    ASSERT_NE(loss, nullptr);
    nodes[0]->destroy();
    parts->lint();
    EXPECT_EQ(parts->outputs()[0], loss->output());
    EXPECT_THAT(test::find_nodes(*parts, "aten::log_softmax"), SizeIs(1));
    EXPECT_THAT(test::find_nodes(*parts, "aten::cross_entropy_loss"), IsEmpty());
    const std::vector<c10::IValue> inputs{x, t, at::rand({5}).to(x.scalar_type())};
    EXPECT_TRUE(loss_of(parts, inputs).equal(loss_of(whole, inputs))) << x.sizes();
  }
}

TEST_F(CrossEntropyParts, SmoothedLabelsStayWhole) {
  const auto graph = cross_entropy("0.1");
  auto* const node = test::find_nodes(*graph, "aten::cross_entropy_loss")[0];
  EXPECT_EQ(take_cross_entropy_apart(node), nullptr);
  EXPECT_THAT(test::find_nodes(*graph, "aten::log_softmax"), IsEmpty());
}

}  // namespace
}  // namespace aten_recompute
