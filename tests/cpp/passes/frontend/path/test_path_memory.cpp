#include "passes/frontend/path/path_memory.h"
#include "passes/frontend/rewrites/not_recordable.h"

#include <torch/csrc/jit/ir/ir.h>

#include "ir/node_traits.h"
#include "passes/frontend/path/path_builder.h"
#include "tests/cpp/support/recorded_path.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using test::find_nodes;
using test::record;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using torch::jit::Module;

class PathMemoryTest : public test::TorchTest {};

Module define_for_path_memory(const std::string& body) {
  auto module = test::make_module("M");
  module.define("\ndef forward(self, x):\n" + body);
  return module;
}

// Records the path of one call; expects that nothing is written to, and that the path gives the
// results of the method for other inputs.
RecordedPath expect_same_memory(const std::string& body) {
  auto module = define_for_path_memory(body);
  auto path = record(module, {at::randn({4, 6})});
  for (const auto* node : path.graph->nodes())
    EXPECT_FALSE(mutates_an_argument(node)) << node->kind().toQualString();
  for (int i = 0; i < 2; ++i) {
    const auto x = at::randn({4, 6});
    const auto ours = test::run_graph(path.graph, {module._ivalue(), x}).at(0).toTensor();
    EXPECT_TRUE(test::bitwise_equal(ours, module.forward({x}).toTensor())) << body;
  }
  return path;
}

TEST_F(PathMemoryTest, AWriteToASliceIsPutIntoTheWhole) {
  const auto path = expect_same_memory(R"(
    y = x * 2
    y[1:3] = x[0:2]
    return y + 1
)");
  EXPECT_THAT(find_nodes(*path.graph, "aten::slice_scatter"), SizeIs(1));
}

TEST_F(PathMemoryTest, OlderViewsShowWhatWasWritten) {
  expect_same_memory(R"(
    y = x * 2
    row = y[1]
    column = y[:, 0]
    y += 1
    row.mul_(3)
    return y * column.unsqueeze(1) + row
)");
}

TEST_F(PathMemoryTest, ViewsOfViewsAreWrittenThrough) {
  expect_same_memory(R"(
    y = x * 2
    y.view(2, 2, 6)[0, :, 1:4].transpose(0, 1).unsqueeze(0).add_(5)
    return y
)");
}

TEST_F(PathMemoryTest, NarrowedAndPermutedViewsAreWrittenThrough) {
  const auto path = expect_same_memory(R"(
    y = x * 2
    y.narrow(1, 1, 2).copy_(x.narrow(1, 0, 2))
    y.narrow(0, -1, 1).add_(3)
    y.view(2, 2, 6).permute(2, -3, 1)[1:3].mul_(5)
    return y
)");
  EXPECT_THAT(find_nodes(*path.graph, "aten::slice_scatter"), SizeIs(3));
}

TEST_F(PathMemoryTest, APlaceThatIsComputedMayCountFromTheEnd) {
  expect_same_memory(R"(
    y = x * 2
    start = y.size(0) - 6
    y.narrow(0, start, 1).add_(3)
    y.narrow(0, -start, 2).mul_(2)
    return y
)");
}

TEST_F(PathMemoryTest, AListOfViewsIsMadeAgain) {
  expect_same_memory(R"(
    y = x * 2
    parts = [y[:2], y[2:]]
    first = torch.cat(parts)
    parts[0].fill_(1)
    y[3] = 7.
    return torch.cat(parts) + first
)");
}

TEST_F(PathMemoryTest, PiecesAreWrittenToApart) {
  const auto path = expect_same_memory(R"(
    a, b = (x * 2).chunk(2, 1)
    a.sigmoid_()
    b.tanh_()
    return a * b
)");
  EXPECT_THAT(find_nodes(*path.graph, "aten::slice_scatter"), IsEmpty());
}

TEST_F(PathMemoryTest, WhatIsWrittenToAPieceKeepsTheGapsBetweenItsRows) {
  auto module = define_for_path_memory(R"(
    a, b = x.exp().chunk(2, 1)
    a.add_(0.3)
    a.sigmoid_()
    return a
)");
  const auto path = record(module, {at::randn({4, 6})});
  const auto a =
      test::run_graph(path.graph, {module._ivalue(), at::randn({4, 6})}).at(0).toTensor();
  EXPECT_EQ(a.strides(), at::IntArrayRef({4, 1}));
}

TEST_F(PathMemoryTest, WritesToATensorWithoutViewsAreFunctional) {
  expect_same_memory(R"(
    h = (x + 1).relu_()
    parts = h.split(3, 1)
    y = torch.stack([parts[0], parts[1].exp()], 1).sum(1)
    y += parts[0]
    y.mul_(2)
    return y
)");
}

std::string reason_against(const std::string& body) {
  try {
    record(define_for_path_memory(body), {at::randn({4, 6})});
  } catch (const NotRecordable& error) {
    return error.what();
  }
  return "";
}

TEST_F(PathMemoryTest, WhatCannotBeMadeAgainIsNotRecorded) {
  EXPECT_THAT(reason_against(R"(
    y = x * 2
    a, b = y.chunk(2, 1)
    a.sigmoid_()
    return y
)"),
              HasSubstr("written to through a view of another kind"));
  // reshape() returns a view here and a copy elsewhere.
  EXPECT_THAT(reason_against(R"(
    y = x * 2
    y.reshape(-1).add_(1)
    return y
)"),
              HasSubstr("written to through a view of another kind"));
}

TEST_F(PathMemoryTest, WhatTheCallerSeesIsWrittenTo) {
  const auto module = define_for_path_memory(R"(
    x[0] = 1.
    return x * 2
)");
  const auto path = record(module, {at::randn({4, 6})});
  EXPECT_THAT(find_nodes(*path.graph, "aten::copy_"), SizeIs(1));
  EXPECT_THAT(find_nodes(*path.graph, "aten::slice_scatter"), IsEmpty());
}

}  // namespace
}  // namespace aten_recompute
