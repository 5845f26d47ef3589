#include "common/lru_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;
using ::testing::Optional;

auto equals(int number) {
  return [number](int entry) { return entry == number; };
}

TEST(LruCacheTest, DropsTheEntryThatWasUsedLeastRecently) {
  LruCache<int> cache(2);
  EXPECT_EQ(cache.insert(1), std::nullopt);
  EXPECT_EQ(cache.insert(2), std::nullopt);
  EXPECT_THAT(cache.insert(3), Optional(1));
  EXPECT_EQ(cache.find(equals(1)), nullptr);
  EXPECT_EQ(cache.size(), 2U);
}

TEST(LruCacheTest, FindingAnEntryMarksItAsUsed) {
  LruCache<int> cache(2);
  cache.insert(1);
  cache.insert(2);
  ASSERT_NE(cache.find(equals(1)), nullptr);
  EXPECT_THAT(cache.insert(3), Optional(2));
}

TEST(LruCacheTest, EntriesAreOrderedByUse) {
  LruCache<int> cache(3);
  for (const int number : {1, 2, 3})
    cache.insert(number);
  cache.find(equals(2));
  EXPECT_THAT(std::vector<int>(cache.begin(), cache.end()), ElementsAre(2, 3, 1));
}

TEST(LruCacheTest, ErasedEntriesAreNotFound) {
  LruCache<int> cache(3);
  for (const int number : {1, 2, 3})
    cache.insert(number);
  cache.erase_if([](int entry) { return entry != 2; });
  EXPECT_EQ(cache.find(equals(3)), nullptr);
  EXPECT_EQ(cache.size(), 1U);
}

}  // namespace
}  // namespace aten_recompute
