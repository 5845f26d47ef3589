#include "runtime/memory_watch.h"

#include <ATen/Functions.h>
#include <torch/csrc/profiler/orchestration/observer.h>

#include <thread>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

class MemoryWatchTest : public test::TorchTest {};

at::Tensor bytes(int64_t size) {
  return at::empty({size}, at::TensorOptions().dtype(at::kByte));
}

TEST_F(MemoryWatchTest, CountsLiveBytesAndTheirPeak) {
  const MemoryWatch watch;
  EXPECT_EQ(watch.alive_bytes(), 0);
  EXPECT_EQ(watch.peak_bytes(), 0);
  auto a = bytes(1000);
  EXPECT_EQ(watch.alive_bytes(), 1000);
  {
    const auto b = bytes(500);
    EXPECT_EQ(watch.alive_bytes(), 1500);
  }
  EXPECT_EQ(watch.alive_bytes(), 1000);
  const auto view = a.view({10, 100})[3];
  EXPECT_EQ(watch.alive_bytes(), 1000);
  a = bytes(200);  // the view keeps the former memory alive
  EXPECT_EQ(watch.alive_bytes(), 1200);
  EXPECT_EQ(watch.peak_bytes(), 1500);
}

TEST_F(MemoryWatchTest, KnowsTheSizesOfBlocks) {
  const auto before = bytes(10);
  const MemoryWatch watch;
  const auto a = bytes(1000);
  EXPECT_EQ(watch.bytes_at(a.storage().data()), 1000);
  EXPECT_EQ(watch.bytes_at(before.storage().data()), 0) << "it is older than the watch";
}

TEST_F(MemoryWatchTest, DoesNotCountAsAnEnabledProfiler) {
  const MemoryWatch watch;
  EXPECT_FALSE(torch::profiler::impl::profilerEnabled());
  EXPECT_TRUE(torch::profiler::impl::getProfilerConfig().disabled());
}

TEST_F(MemoryWatchTest, OlderMemoryAndItsReleaseDoNotCount) {
  auto before = bytes(1000);
  const MemoryWatch watch;
  before.reset();
  EXPECT_EQ(watch.alive_bytes(), 0);
  const auto a = bytes(10);
  EXPECT_EQ(watch.alive_bytes(), 10);
  EXPECT_EQ(watch.peak_bytes(), 10);
}

TEST_F(MemoryWatchTest, ResetStartsFromZero) {
  MemoryWatch watch;
  auto a = bytes(1000);
  watch.reset();
  EXPECT_EQ(watch.alive_bytes(), 0);
  EXPECT_EQ(watch.peak_bytes(), 0);
  a.reset();  // this memory is older than the reset
  EXPECT_EQ(watch.alive_bytes(), 0);
  const auto b = bytes(30);
  EXPECT_EQ(watch.peak_bytes(), 30);
}

TEST_F(MemoryWatchTest, TemporariesOfOperatorsCount) {
  const auto x = at::ones({1000});
  const MemoryWatch watch;
  const auto y = at::add(at::mul(x, x), x);  // x * x and the sum, of 4000 bytes each
  EXPECT_EQ(watch.alive_bytes(), 4000);
  EXPECT_EQ(watch.peak_bytes(), 8000);
}

TEST_F(MemoryWatchTest, AnInnerWatchInterruptsTheOuterOne) {
  const MemoryWatch outer;
  const auto a = bytes(100);
  {
    const MemoryWatch inner;
    const auto b = bytes(10);
    EXPECT_EQ(inner.alive_bytes(), 10);
    EXPECT_EQ(outer.alive_bytes(), 100);
  }
  const auto c = bytes(1);
  EXPECT_EQ(outer.alive_bytes(), 101);
}

TEST_F(MemoryWatchTest, OtherThreadsAreNotSeen) {
  const MemoryWatch watch;
  at::Tensor other;
  std::thread([&] { other = bytes(1000); }).join();
  EXPECT_EQ(watch.alive_bytes(), 0);
  other.reset();
  EXPECT_EQ(watch.alive_bytes(), 0);
}

}  // namespace
}  // namespace aten_recompute
