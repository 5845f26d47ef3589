#include "passes/profile/zeroed_memory.h"

#include <ATen/Functions.h>

#include <algorithm>

#include "tests/cpp/support/testing.h"

namespace aten_recompute {
namespace {

class ZeroedMemoryTest : public test::TorchTest {};

const char* begin_of(const c10::Storage& storage) {
  return static_cast<const char*>(storage.data());
}

TEST_F(ZeroedMemoryTest, StoragesLieSideBySideAndAreZero) {
  ZeroedMemory memory;
  memory.reserve(at::kCPU, 2, 300);
  const auto a = memory.take(at::kCPU, 100);
  const auto b = memory.take(at::kCPU, 200);
  EXPECT_EQ(a.nbytes(), 100);
  EXPECT_GE(begin_of(b), begin_of(a) + 100);
  EXPECT_TRUE(std::all_of(begin_of(b), begin_of(b) + 200, [](char byte) { return byte == 0; }));
}

TEST_F(ZeroedMemoryTest, MemoryThatIsLargeEnoughIsReused) {
  ZeroedMemory memory;
  memory.reserve(at::kCPU, 1, 1000);
  const auto* first = begin_of(memory.take(at::kCPU, 1000));
  memory.reserve(at::kCPU, 2, 500);
  EXPECT_EQ(begin_of(memory.take(at::kCPU, 400)), first);
  EXPECT_NE(begin_of(memory.take(at::kCPU, 100)), first);
}

TEST_F(ZeroedMemoryTest, MoreThanWasReservedIsRefused) {
  ZeroedMemory memory;
  memory.reserve(at::kCPU, 1, 100);
  memory.take(at::kCPU, 100);
  EXPECT_ANY_THROW(memory.take(at::kCPU, 100));
}

}  // namespace
}  // namespace aten_recompute
