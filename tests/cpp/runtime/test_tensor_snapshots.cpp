#include "runtime/tensor_snapshots.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

class TensorSnapshotsTest : public test::TorchTest {};

TEST_F(TensorSnapshotsTest, ContentAndVersionAreRestored) {
  const auto x = at::ones({2});
  const auto version = x._version();
  TensorSnapshots snapshots;
  snapshots.add(x);
  x.add_(1);
  snapshots.restore();
  EXPECT_TRUE(x.equal(at::ones({2})));
  EXPECT_EQ(x._version(), version);
}

TEST_F(TensorSnapshotsTest, ABackwardFindsWhatItSavedBeforeTheWrite) {
  const auto x = at::ones({2}).requires_grad_();
  const auto y = (x * x).sum();
  TensorSnapshots snapshots;
  snapshots.add(x);
  {
    const at::NoGradGuard no_grad;
    x.add_(1);
  }
  snapshots.restore();
  y.backward();
  EXPECT_TRUE(x.grad().equal(at::full({2}, 2)));
}

// The second view is added when the first has been written to, and so has the part they share.
TEST_F(TensorSnapshotsTest, ViewsThatOverlapAreRestoredTogether) {
  const auto x = at::zeros({3});
  TensorSnapshots snapshots;
  const auto first = x.slice(0, 0, 2);
  const auto second = x.slice(0, 1, 3);
  snapshots.add(first);
  first.add_(1);
  snapshots.add(second);
  second.add_(1);
  snapshots.restore();
  EXPECT_TRUE(x.equal(at::zeros({3})));
}

TEST_F(TensorSnapshotsTest, WhatWasAddedTwiceGetsItsFirstContent) {
  const auto dense = at::ones({2});
  const auto sparse = at::ones({2}).to_sparse();
  const auto version = dense._version();
  TensorSnapshots snapshots;
  for (int i = 0; i < 2; ++i) {
    snapshots.add(dense);
    snapshots.add(sparse);
    dense.mul_(2);
    sparse.mul_(2);
  }
  snapshots.restore();
  EXPECT_TRUE(dense.equal(at::ones({2})));
  EXPECT_EQ(dense._version(), version);
  EXPECT_TRUE(sparse.to_dense().equal(at::ones({2})));
}

TEST_F(TensorSnapshotsTest, ATensorWithoutElementsIsNothingToRestore) {
  const auto x = at::empty({0});
  TensorSnapshots snapshots;
  snapshots.add(x);
  x.add_(1);
  snapshots.restore();
  EXPECT_EQ(x._version(), 0U);
}

}  // namespace
}  // namespace aten_recompute
