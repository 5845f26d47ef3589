#include "runtime/meta_memory.h"

#include <ATen/Functions.h>

#include "runtime/memory_watch.h"
#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

class MetaMemory : public test::TorchTest {};

at::Tensor make(int64_t elements) {
  return at::empty({elements}, at::TensorOptions().device(at::kMeta));
}

TEST_F(MetaMemory, AWatchCountsWhatMetaTensorsWouldTake) {
  const MemoryWatch watch;
  const CountMetaMemory count;
  const auto x = make(10);
  { const auto y = make(20); }
  EXPECT_EQ(watch.alive_bytes(), 40);
  EXPECT_EQ(watch.peak_bytes(), 120);
}

TEST_F(MetaMemory, OneByteCountsAndNoneIsNoBlock) {
  const MemoryWatch watch;
  const CountMetaMemory count;
  const auto options = at::TensorOptions().device(at::kMeta).dtype(at::kByte);
  const auto one = at::empty({1}, options);
  const auto none = at::empty({0}, options);
  EXPECT_EQ(watch.alive_bytes(), 1);
  EXPECT_EQ(none.storage().data_ptr().get_context(), nullptr);
}

TEST_F(MetaMemory, IsNotCountedOtherwise) {
  const MemoryWatch watch;
  const auto x = make(10);
  EXPECT_EQ(watch.peak_bytes(), 0);
}

TEST_F(MetaMemory, WhatIsMadeDuringAPauseCountsOnceItIsReported) {
  const MemoryWatch watch;
  const CountMetaMemory count;
  at::Tensor x, y;
  {
    const PauseMetaMemory pause;
    x = make(10);
    y = make(20);
    count_meta_memory(x);
  }
  EXPECT_EQ(watch.alive_bytes(), 0);
  count_meta_memory(x);
  count_meta_memory(x);
  EXPECT_EQ(watch.alive_bytes(), 40);
  x = y = at::Tensor();
  EXPECT_EQ(watch.alive_bytes(), 0);
}

TEST_F(MetaMemory, AnExemptTensorTakesNone) {
  const MemoryWatch watch;
  const CountMetaMemory count;
  at::Tensor x;
  {
    const PauseMetaMemory pause;
    x = make(10);
    exempt_meta_memory(x);
  }
  count_meta_memory(x);
  EXPECT_EQ(watch.peak_bytes(), 0);
  EXPECT_EQ(meta_memory_of(x), 0);
  EXPECT_EQ(meta_memory_of(make(10)), 40);
}

}  // namespace
}  // namespace aten_recompute
