#include "passes/frontend/path/meta_run.h"

#include <ATen/Functions.h>
#include <torch/csrc/jit/ir/ir.h>

#include "passes/frontend/rewrites/not_recordable.h"
#include "rules/meta_mode.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

using torch::jit::Node;
using torch::jit::Stack;

class MetaRunTest : public test::TorchTest {
 protected:
  // Runs the only node of its kind in the graph.
  static Stack run(MetaRun& meta_run, const std::string& ir, const std::string& kind,
                   Stack operands) {
    const auto graph = test::parse(ir);
    const auto* node = test::find_nodes(*graph, kind).at(0);
    meta_run.prepare(node, operands);
    const MetaMode mode;
    node->getOperation()(operands);
    meta_run.finish();
    return operands;
  }

  static Stack device_of(MetaRun& meta_run, const at::Tensor& tensor) {
    return run(meta_run, "graph(%x : Tensor):\n  %d : Device = prim::device(%x)\n  return (%d)\n",
               "prim::device", {tensor});
  }
};

TEST_F(MetaRunTest, WhatSharesMemoryDoesSoWithoutIt) {
  MetaRun meta_run;
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
  MetaRun meta_run;
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
  MetaRun meta_run;
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
  MetaRun meta_run;
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
  MetaRun meta_run;
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
  MetaRun meta_run;
  const auto x = meta_run.of(at::rand({4, 3})).toTensor();
  EXPECT_EQ(device_of(meta_run, x).at(0).toDevice(), at::Device(at::kCPU));
}

TEST_F(MetaRunTest, ASparseTensorIsRefused) {
  MetaRun meta_run;
  EXPECT_THROW(meta_run.of(at::eye(3).to_sparse()), NotRecordable);
}

}  // namespace
}  // namespace aten_recompute
