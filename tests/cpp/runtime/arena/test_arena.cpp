// Arenas: what is in use is never handed out twice, and memory goes back when it should.
#include "runtime/arena/arena.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

namespace aten_recompute {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// Returns the resident memory of the process in bytes.
int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  int64_t total = 0, resident = 0;
  file >> total >> resident;
  constexpr int64_t kPage = 4096;
  return resident * kPage;
}

TEST(Arena, HandsOutMemoryAtTheOffsetThatIsAskedFor) {
  const auto arena = Arena::make(4096);
  auto* const first = static_cast<char*>(arena->take(0, 100));
  auto* const second = static_cast<char*>(arena->take(128, 64));
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(second, first + 128);
  std::memset(first, 1, 100);
  std::memset(second, 2, 64);
  EXPECT_EQ(arena->used_bytes(), 164);
  EXPECT_EQ(arena->give_back(second), 64);
  EXPECT_EQ(arena->give_back(first), 100);
  EXPECT_EQ(arena->used_bytes(), 0);
}

TEST(Arena, HasNoPageMoreThanItNeeds) {
  const auto page = Arena::make(1)->bytes();
  EXPECT_EQ(Arena::make(page)->bytes(), page);
  EXPECT_EQ(Arena::make(page + 1)->bytes(), 2 * page);
}

TEST(Arena, DoesNotHandOutWhatIsInUse) {
  const auto arena = Arena::make(4096);
  ASSERT_NE(arena->take(256, 256), nullptr);
  EXPECT_EQ(arena->take(256, 256), nullptr);
  EXPECT_EQ(arena->take(200, 57), nullptr);
  EXPECT_EQ(arena->take(511, 8), nullptr);
  EXPECT_EQ(arena->take(0, 4096), nullptr);
  EXPECT_EQ(arena->take(300, 10), nullptr);
  EXPECT_NE(arena->take(200, 56), nullptr);
  EXPECT_NE(arena->take(512, 8), nullptr);
}

TEST(Arena, GivesBackNothingWhereNoBlockBegins) {
  const auto arena = Arena::make(4096);
  auto* const block = static_cast<char*>(arena->take(128, 64));
  EXPECT_EQ(arena->give_back(block - 128), 0);
  EXPECT_EQ(arena->give_back(block + 8), 0);
  EXPECT_EQ(arena->used_bytes(), 64);
  EXPECT_EQ(arena->give_back(block), 64);
  EXPECT_EQ(arena->give_back(block), 0);
}

TEST(Arena, HandsOutNothingBeyondItsEnds) {
  const auto arena = Arena::make(4096);
  EXPECT_EQ(arena->take(-64, 64), nullptr);
  EXPECT_EQ(arena->take(arena->bytes(), 1), nullptr);
  EXPECT_EQ(arena->take(arena->bytes() - 8, 9), nullptr);
  EXPECT_EQ(arena->take(0, 0), nullptr);
  EXPECT_NE(arena->take(arena->bytes() - 8, 8), nullptr);
}

TEST(Arena, IsFoundByTheAddressesInIt) {
  const auto arena = Arena::make(4096);
  const auto* const block = static_cast<const char*>(arena->take(0, 4096));
  EXPECT_EQ(Arena::containing(block), arena);
  EXPECT_EQ(Arena::containing(block + 4095), arena);
  int elsewhere = 0;
  EXPECT_EQ(Arena::containing(&elsewhere), nullptr);
}

TEST(Arena, GoesAfterItsLastBlock) {
  auto arena = Arena::make(4096);
  auto* const block = arena->take(0, 64);
  const std::weak_ptr<Arena> watched = arena;
  arena->retire();
  arena = nullptr;
  ASSERT_NE(Arena::containing(block), nullptr);
  std::memset(block, 1, 64);
  EXPECT_EQ(Arena::containing(block)->give_back(block), 64);
  EXPECT_EQ(Arena::containing(block), nullptr);
  EXPECT_TRUE(watched.expired());
}

TEST(Arena, GivesBackThePagesThatNoBlockUses) {
  const auto arena = Arena::make(64 * kMiB);
  auto* const all = static_cast<char*>(arena->take(0, 64 * kMiB));
  std::memset(all, 1, 64 * kMiB);
  arena->give_back(all);
  auto* const kept = static_cast<char*>(arena->take(32 * kMiB, kMiB));
  std::memset(kept, 7, kMiB);
  const auto before = resident_bytes();
  arena->release_pages();
  EXPECT_LT(resident_bytes(), before - 50 * kMiB);
  EXPECT_EQ(kept[0], 7);
  EXPECT_EQ(kept[kMiB - 1], 7);
}

// Random blocks from several threads: each writes its own number and finds it again.
TEST(Arena, KeepsBlocksOfThreadsApart) {
  constexpr int kThreads = 4, kRounds = 3000;
  const auto arena = Arena::make(kMiB);
  std::vector<std::thread> threads;
  std::vector<int> errors(kThreads, 0);
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      for (int i = 0; i < kRounds; ++i) {
        const auto offset = static_cast<int64_t>(random() % kMiB);
        const auto bytes = static_cast<int64_t>(1 + random() % 4096);
        auto* const block = static_cast<unsigned char*>(arena->take(offset, bytes));
        if (block == nullptr)
          continue;
        std::memset(block, t, static_cast<size_t>(bytes));
        std::this_thread::yield();
        for (int64_t k = 0; k < bytes; ++k)
          errors[t] += block[k] != t;
        arena->give_back(block);
      }
    });
  }
  for (auto& thread : threads)
    thread.join();
  EXPECT_EQ(errors, std::vector<int>(kThreads, 0));
  EXPECT_EQ(arena->used_bytes(), 0);
}

#if defined(__SANITIZE_ADDRESS__)
TEST(ArenaDeathTest, GapsAndFreedBlocksArePoisoned) {
  const auto arena = Arena::make(4096);
  auto* volatile first = static_cast<char*>(arena->take(0, 64));
  auto* volatile second = static_cast<char*>(arena->take(128, 64));
  EXPECT_DEATH(first[64] = 1, "use-after-poison");
  EXPECT_DEATH(second[-1] = 1, "use-after-poison");
  arena->give_back(first);
  EXPECT_DEATH(first[0] = 1, "use-after-poison");
}
#endif

class Pool : public ::testing::Test {
 protected:
  void SetUp() override { ArenaPool::instance().clear(); }
  void TearDown() override { ArenaPool::instance().clear(); }
  ArenaPool& pool_ = ArenaPool::instance();
};

TEST_F(Pool, HandsOutAnArenaAgain) {
  auto arena = pool_.acquire(kMiB);
  const auto* const same = arena.get();
  pool_.give_back(std::move(arena), false);
  EXPECT_EQ(pool_.acquire(kMiB / 2).get(), same);
}

TEST_F(Pool, HandsOutTwoWhereTwoAreInUse) {
  const auto one = pool_.acquire(kMiB), two = pool_.acquire(kMiB);
  EXPECT_NE(one, two);
}

TEST_F(Pool, ReplacesAnArenaThatIsTooSmall) {
  auto arena = pool_.acquire(kMiB);
  const std::weak_ptr<Arena> small = arena;
  pool_.give_back(std::move(arena), false);
  EXPECT_GE(pool_.acquire(4 * kMiB)->bytes(), 4 * kMiB);
  EXPECT_TRUE(small.expired());
}

TEST_F(Pool, LeavesAloneAnArenaThatOldBlocksFill) {
  auto arena = pool_.acquire(kMiB);
  auto* const block = arena->take(0, kMiB / 2);
  pool_.give_back(arena, false);
  EXPECT_NE(pool_.acquire(kMiB), arena);
  arena->give_back(block);
}

TEST_F(Pool, ReleasedMemoryIsNotResident) {
  auto arena = pool_.acquire(64 * kMiB);
  auto* const block = arena->take(0, 64 * kMiB);
  std::memset(block, 1, 64 * kMiB);
  arena->give_back(block);
  const auto before = resident_bytes();
  pool_.give_back(std::move(arena), true);
  EXPECT_LT(resident_bytes(), before - 50 * kMiB);
}

TEST_F(Pool, ClearGivesBackWhatIsKept) {
  auto arena = pool_.acquire(64 * kMiB);
  auto* const block = arena->take(0, 64 * kMiB);
  std::memset(block, 1, 64 * kMiB);
  arena->give_back(block);
  pool_.give_back(std::move(arena), false);
  const auto before = resident_bytes();
  pool_.clear();
  EXPECT_LT(resident_bytes(), before - 50 * kMiB);
}

}  // namespace
}  // namespace aten_recompute
