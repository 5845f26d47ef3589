#include "passes/frontend/path/meta_run.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/frontend/rewrites/not_recordable.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using torch::jit::Stack;

constexpr int64_t kMemory = 4096;  // of which half is for known elements

class MetaRunTest : public test::TorchTest {
 protected:
  // Runs the only node of its kind in the graph.
  static Stack run(MetaRun& meta_run, const std::string& ir, const std::string& kind,
                   Stack operands) {
    const auto graph = test::parse(ir);
    meta_run.run(test::find_nodes(*graph, kind).at(0), operands);
    return operands;
  }

  static Stack item_of(MetaRun& meta_run, const at::Tensor& tensor) {
    return run(meta_run, "graph(%x : Tensor):\n  %v : Scalar = aten::item(%x)\n  return (%v)\n",
               "aten::item", {tensor});
  }

  static at::Tensor add_one(MetaRun& meta_run, const at::Tensor& tensor,
                            const std::string& kind = "aten::add") {
    const auto ir = "graph(%x : Tensor, %y : Tensor, %alpha : int):\n  %z : Tensor = " + kind +
                    "(%x, %y, %alpha)\n  return (%z)\n";
    return run(meta_run, ir, kind, {tensor, at::ones({}), 1}).at(0).toTensor();
  }

  static Stack device_of(MetaRun& meta_run, const at::Tensor& tensor) {
    return run(meta_run, "graph(%x : Tensor):\n  %d : Device = prim::device(%x)\n  return (%d)\n",
               "prim::device", {tensor});
  }
};

TEST_F(MetaRunTest, WhatSharesMemoryDoesSoWithoutIt) {
  MetaRun meta_run(kMemory);
  const auto x = at::rand({4, 3}).requires_grad_();
  const auto view = x.detach().t();
  const auto of_x = meta_run.of(x).toTensor();
  const auto of_view = meta_run.of(view).toTensor();
  EXPECT_TRUE(of_x.is_meta());
  EXPECT_TRUE(of_x.requires_grad());
  EXPECT_TRUE(of_x.is_alias_of(of_view));
  EXPECT_EQ(of_view.strides(), view.strides());
  EXPECT_TRUE(of_x.is_same(meta_run.of(x).toTensor()));
}

TEST_F(MetaRunTest, AViewOfAnOperandSharesItsMemory) {
  MetaRun meta_run(kMemory);
  const auto x = meta_run.of(at::rand({4, 3})).toTensor();
  const auto results = run(meta_run, R"(
graph(%x : Tensor, %d : int, %i : int):
  %y : Tensor = aten::select(%x, %d, %i)
  return (%y)
)",
                           "aten::select", {x, 0, 1});
  EXPECT_TRUE(results.at(0).toTensor().is_alias_of(x));
}

TEST_F(MetaRunTest, AWriteIsCounted) {
  MetaRun meta_run(kMemory);
  const auto x = meta_run.of(at::rand({4, 3})).toTensor();
  const auto version = x._version();
  run(meta_run, R"(
graph(%x : Tensor):
  %y : Tensor = aten::relu_(%x)
  return (%y)
)",
      "aten::relu_", {x});
  EXPECT_EQ(x._version(), version + 1);
}

TEST_F(MetaRunTest, ConstantsAreOperandsLikeOthers) {
  MetaRun meta_run(kMemory);
  const auto x = meta_run.of(at::rand({4, 3})).toTensor();
  const auto results = run(meta_run, R"(
graph(%x : Tensor, %y : Tensor):
  %z : Tensor = aten::mul(%x, %y)
  return (%z)
)",
                           "aten::mul", {x, at::ones({3})});
  EXPECT_TRUE(results.at(0).toTensor().is_meta());
  EXPECT_EQ(results.at(0).toTensor().sizes(), at::IntArrayRef({4, 3}));
}

TEST_F(MetaRunTest, WhatIsMadeOnADeviceHasNoMemory) {
  MetaRun meta_run(kMemory);
  meta_run.of(at::rand({4, 3}));
  const auto results = run(meta_run, R"(
graph(%size : int[], %dtype : int?, %layout : int?, %device : Device?, %pin : bool?):
  %z : Tensor = aten::zeros(%size, %dtype, %layout, %device, %pin)
  return (%z)
)",
                           "aten::zeros",
                           {std::vector<int64_t>{int64_t{1} << 50}, at::kFloat, c10::IValue(),
                            at::Device(at::kCPU), c10::IValue()});
  EXPECT_TRUE(results.at(0).toTensor().is_meta());
}

TEST_F(MetaRunTest, TheDeviceIsThatOfTheCall) {
  MetaRun meta_run(kMemory);
  const auto x = meta_run.of(at::rand({4, 3})).toTensor();
  EXPECT_EQ(device_of(meta_run, x).at(0).toDevice(), at::Device(at::kCPU));
}

TEST_F(MetaRunTest, ASparseTensorIsRefused) {
  MetaRun meta_run(kMemory);
  EXPECT_THROW(meta_run.of(at::eye(3).to_sparse()), NotRecordable);
}

TEST_F(MetaRunTest, WhatFollowsFromSmallTensorsIsKnown) {
  MetaRun meta_run(kMemory);
  const auto x = meta_run.of(at::full({1}, 3.0)).toTensor();
  const auto y = add_one(meta_run, x);
  EXPECT_TRUE(y.is_meta());
  EXPECT_EQ(item_of(meta_run, y).at(0).toDouble(), 4.0);
}

TEST_F(MetaRunTest, WhatIsTooLargeIsNotKnown) {
  MetaRun meta_run(kMemory);
  const auto x = meta_run.of(at::full({1}, 3.0)).toTensor();
  const auto large = run(meta_run, R"(
graph(%x : Tensor, %sizes : int[], %implicit : bool):
  %y : Tensor = aten::expand(%x, %sizes, %implicit)
  return (%y)
)",
                         "aten::expand", {x, std::vector<int64_t>{1000}, false});
  const auto last = run(meta_run, R"(
graph(%x : Tensor, %d : int, %i : int):
  %y : Tensor = aten::select(%x, %d, %i)
  return (%y)
)",
                        "aten::select", {large.at(0), 0, 1});
  EXPECT_THROW(item_of(meta_run, last.at(0).toTensor()), NotRecordable);
}

TEST_F(MetaRunTest, RoomIsThatOfTheTensorsThatAreAlive) {
  MetaRun meta_run(kMemory);
  auto x = meta_run.of(at::full({100}, 3.0)).toTensor();  // five of this size have room
  for (int i = 0; i < 100; ++i)
    x = add_one(meta_run, x);
  const auto last = run(meta_run, R"(
graph(%x : Tensor, %d : int, %i : int):
  %y : Tensor = aten::select(%x, %d, %i)
  return (%y)
)",
                        "aten::select", {x, 0, 1});
  EXPECT_EQ(item_of(meta_run, last.at(0).toTensor()).at(0).toDouble(), 103.0);
}

TEST_F(MetaRunTest, AWriteToWhatTheMethodMadeIsKnown) {
  MetaRun meta_run(kMemory);
  const auto y = add_one(meta_run, meta_run.of(at::full({1}, 3.0)).toTensor());
  add_one(meta_run, y, "aten::add_");
  EXPECT_EQ(item_of(meta_run, y).at(0).toDouble(), 5.0);
}

TEST_F(MetaRunTest, WhatTheMethodWasGivenIsNotWrittenTo) {
  MetaRun meta_run(kMemory);
  const auto given = at::full({1}, 3.0);
  const auto x = meta_run.of(given).toTensor();
  add_one(meta_run, x, "aten::add_");
  EXPECT_EQ(given.item<double>(), 3.0);
  EXPECT_THROW(item_of(meta_run, x), NotRecordable);
}

TEST_F(MetaRunTest, AViewOfWhatWasWrittenToIsNotKnown) {
  MetaRun meta_run(kMemory);
  const auto x = meta_run.of(at::full({1, 1}, 3.0)).toTensor();
  const auto view = run(meta_run, R"(
graph(%x : Tensor, %d : int, %i : int):
  %y : Tensor = aten::select(%x, %d, %i)
  return (%y)
)",
                        "aten::select", {x, 0, 0})
                        .at(0)
                        .toTensor();
  EXPECT_EQ(item_of(meta_run, view).at(0).toDouble(), 3.0);
  add_one(meta_run, x, "aten::add_");
  EXPECT_THROW(item_of(meta_run, view), NotRecordable);
}

TEST_F(MetaRunTest, KnownMasksSelectFromWhatIsNotKnown) {
  MetaRun meta_run(kMemory);
  const auto mask = meta_run.of(at::tensor({1, 0, 1}).to(at::kBool)).toTensor();
  const auto x = at::empty({3, 5}, at::kMeta);
  const std::string ir = R"(
graph(%x : Tensor, %indices : Tensor?[]):
  %y : Tensor = aten::index(%x, %indices)
  return (%y)
)";
  const c10::List<std::optional<at::Tensor>> indices({mask});
  EXPECT_EQ(run(meta_run, ir, "aten::index", {x, indices}).at(0).toTensor().sizes(),
            at::IntArrayRef({2, 5}));
  const c10::List<std::optional<at::Tensor>> unknown({at::empty({3}, mask.options())});
  EXPECT_THROW(run(meta_run, ir, "aten::index", {x, unknown}), NotRecordable);
}

}  // namespace
}  // namespace aten_recompute
