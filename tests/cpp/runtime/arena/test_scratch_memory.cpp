#include "runtime/arena/scratch_memory.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "runtime/arena/arena_allocator.h"
#include "runtime/arena/step_arena.h"

namespace aten_recompute {
namespace {

constexpr int64_t kOneMiB = 1 << 20;

int64_t resident_now() {
  std::ifstream file("/proc/self/status");
  for (std::string word; file >> word;) {
    if (word == "VmRSS:") {
      int64_t kib = 0;
      file >> kib;
      return kib * 1024;
    }
  }
  return -1;
}

void* allocate(int64_t bytes) {
  void* const block = ScratchMemory::allocate(bytes);
  if (block != nullptr)
    std::memset(block, 1, static_cast<size_t>(bytes));
  return block;
}

TEST(ScratchMemory, ServesLargeBlocksWhileItExists) {
  EXPECT_EQ(allocate(kOneMiB), nullptr);
  void* block = nullptr;
  {
    const ScratchMemory scratch;
    EXPECT_EQ(allocate(1024), nullptr) << "small blocks are for the C library";
    block = allocate(kOneMiB);
    ASSERT_NE(block, nullptr);
  }
  EXPECT_EQ(allocate(kOneMiB), nullptr);
  // A block may outlive it.
  std::memset(block, 2, kOneMiB);
  EXPECT_TRUE(ScratchMemory::free(block));
  EXPECT_FALSE(ScratchMemory::free(block));
}

TEST(ScratchMemory, UsesFreedBlocksAgain) {
  const ScratchMemory scratch;
  void* const block = allocate(8 * kOneMiB);
  EXPECT_TRUE(ScratchMemory::free(block));
  void* const again = allocate(8 * kOneMiB - 5);
  EXPECT_EQ(again, block);
  EXPECT_TRUE(ScratchMemory::free(again));
  void* const smaller = allocate(kOneMiB);
  EXPECT_NE(smaller, block) << "it would waste most of the block";
  EXPECT_TRUE(ScratchMemory::free(smaller));
}

TEST(ScratchMemory, UsesABlockThatIsLargerByAnEighth) {
  const ScratchMemory scratch;
  for (const int64_t more : {int64_t{0}, int64_t{1}}) {
    void* const block = allocate(9 * kOneMiB + more);
    EXPECT_TRUE(ScratchMemory::free(block));
    void* const again = ScratchMemory::allocate(8 * kOneMiB);
    // A block that is mapped anew has zeros, be it at the same address.
    EXPECT_EQ(*static_cast<char*>(again), more == 0 ? 1 : 0);
    EXPECT_TRUE(ScratchMemory::free(again));
    ScratchMemory::release_free_blocks();
  }
}

TEST(ScratchMemory, ABlockThatIsUsedAgainDoesNotCountAsFree) {
  const ScratchMemory scratch;
  std::vector<void*> blocks;
  for (const int64_t mebibytes : {8, 8, 16})
    blocks.push_back(allocate(mebibytes * kOneMiB));
  for (auto* block : blocks)
    EXPECT_TRUE(ScratchMemory::free(block));
  // 8 of 32 MiB are used again, and 4 others are mapped in place of the second block: the third one
  // stays.
  void* const first = ScratchMemory::allocate(8 * kOneMiB);
  void* const other = ScratchMemory::allocate(4 * kOneMiB);
  void* const last = ScratchMemory::allocate(16 * kOneMiB);
  EXPECT_EQ(*static_cast<char*>(last), 1);
  for (auto* block : {first, other, last})
    EXPECT_TRUE(ScratchMemory::free(block));
}

TEST(ScratchMemory, BlocksInUseLeaveLessForFreeOnes) {
  const ScratchMemory scratch;
  void* const used = allocate(8 * kOneMiB);
  EXPECT_TRUE(ScratchMemory::free(allocate(16 * kOneMiB)));
  // At most 24 MiB were in use. With 12 more beside the first 8, no 16 can stay.
  void* const other = ScratchMemory::allocate(12 * kOneMiB);
  void* const last = ScratchMemory::allocate(16 * kOneMiB);
  EXPECT_EQ(*static_cast<char*>(last), 0) << "it is not the block that was freed";
  for (auto* block : {used, other, last})
    EXPECT_TRUE(ScratchMemory::free(block));
}

TEST(ScratchMemory, TakesNoMoreThanWasInUseAtOnce) {
  const ScratchMemory scratch;
  const auto before = resident_now();
  for (int64_t i = 0; i < 16; ++i)
    EXPECT_TRUE(ScratchMemory::free(allocate((16 + 4 * i) * kOneMiB)));
  // The largest block has 76 MiB, all together have 736.
  EXPECT_LT(resident_now(), before + 96 * kOneMiB);
}

TEST(ScratchMemory, NothingOfItStaysResident) {
  const auto before = resident_now();
  {
    const ScratchMemory scratch;
    void* const kept = allocate(kOneMiB);
    EXPECT_TRUE(ScratchMemory::free(allocate(64 * kOneMiB)));
    EXPECT_GT(resident_now(), before + 60 * kOneMiB);
    ScratchMemory::release_free_blocks();
    EXPECT_LT(resident_now(), before + 20 * kOneMiB);
    EXPECT_TRUE(ScratchMemory::free(allocate(64 * kOneMiB)));
    EXPECT_TRUE(ScratchMemory::free(kept));
  }
  EXPECT_LT(resident_now(), before + 20 * kOneMiB);
}

TEST(ScratchMemory, IsThatOfItsThread) {
  const ScratchMemory scratch;
  void* const block = allocate(kOneMiB);
  std::thread([&] {
    EXPECT_EQ(allocate(kOneMiB), nullptr);
    EXPECT_TRUE(ScratchMemory::free(block)) << "freeing works on any thread";
  }).join();
}

TEST(ScratchMemory, TheInnermostServes) {
  const ScratchMemory outer;
  void* first = allocate(kOneMiB);
  {
    const ScratchMemory inner;
    void* const second = allocate(kOneMiB);
    EXPECT_TRUE(ScratchMemory::free(first));
    EXPECT_NE(allocate(kOneMiB), first) << "a free block of the outer one";
    EXPECT_TRUE(ScratchMemory::free(second));
  }
  EXPECT_EQ(allocate(kOneMiB), first);
}

TEST(ScratchMemory, ServesTensors) {
  install_arena_allocator();
  at::Tensor tensor;
  {
    const ScratchMemory scratch;
    tensor = at::ones({kOneMiB});
  }
  EXPECT_EQ(tensor.sum().item<float>(), static_cast<float>(kOneMiB));
  EXPECT_TRUE(free_block(tensor.storage().mutable_data_ptr().release_context()));
}

TEST(ScratchMemory, NoMoreIsInUseThanALimitAllows) {
  const ScratchMemory scratch;
  auto* const first = ScratchMemory::allocate(kOneMiB);
  ASSERT_NE(first, nullptr);
  {
    const ScratchMemory::Limit limit(2 * kOneMiB);
    auto* const second = ScratchMemory::allocate(kOneMiB);
    ASSERT_NE(second, nullptr);
    EXPECT_THROW(ScratchMemory::allocate(kOneMiB), ScratchMemory::LimitReached);
    ScratchMemory::free(first);
    auto* const third = ScratchMemory::allocate(kOneMiB);
    EXPECT_NE(third, nullptr);
    ScratchMemory::free(third);
    ScratchMemory::free(second);
  }
  auto* const large = ScratchMemory::allocate(4 * kOneMiB);
  EXPECT_NE(large, nullptr);
  ScratchMemory::free(large);
}

TEST(ScratchMemory, ALimitAllowsNoMoreThanTheOneAroundIt) {
  const ScratchMemory scratch;
  const ScratchMemory::Limit outer(2 * kOneMiB);
  EXPECT_TRUE(outer.is_binding());
  {
    const ScratchMemory::Limit larger(4 * kOneMiB);
    EXPECT_FALSE(larger.is_binding());
    EXPECT_THROW(ScratchMemory::allocate(3 * kOneMiB), ScratchMemory::LimitReached);
  }
  {
    const ScratchMemory::Limit smaller(kOneMiB);
    EXPECT_TRUE(smaller.is_binding());
    EXPECT_THROW(ScratchMemory::allocate(2 * kOneMiB), ScratchMemory::LimitReached);
  }
  auto* const block = ScratchMemory::allocate(2 * kOneMiB);
  EXPECT_NE(block, nullptr);
  ScratchMemory::free(block);
}

}  // namespace
}  // namespace aten_recompute
