#include "backend/memory/step_watch.h"

#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace aten_recompute {
namespace {

using ::testing::ElementsAre;

at::Tensor bytes(int64_t count) {
  return at::empty({count}, at::kByte);
}

// Makes a call with one region.
void run_call(StepWatch& watch) {
  watch.hold();
  watch.begin_forward();
  watch.end_call();
}

TEST(StepWatch, TellsTheForwardFromTheBackward) {
  const auto watch = StepWatch::start();
  ASSERT_NE(watch, nullptr);
  watch->hold();
  const auto before = bytes(1000);
  EXPECT_EQ(watch->begin_forward(), 0U);
  const auto kept = bytes(500);
  EXPECT_EQ(watch->begin_forward(), 1U);
  watch->end_call();
  const auto of_the_loss = bytes(70);

  watch->begin_backward(1, 0);
  bytes(200);
  watch->end_backward(1);
  bytes(300);
  watch->begin_backward(0, 0);
  const auto gradient = bytes(50);
  bytes(30);
  watch->end_backward(0);
  bytes(5000);
  watch->stop();

  const auto memory = watch->memory();
  EXPECT_THAT(memory.at_forward, ElementsAre(1000, 1500));
  EXPECT_EQ(memory.saved, 1500);
  ASSERT_EQ(memory.backward.size(), 2U);
  EXPECT_EQ(memory.backward[1].peak, 200);
  EXPECT_EQ(memory.backward[1].peak_after, 300);
  EXPECT_EQ(memory.backward[0].peak, 80);
  EXPECT_EQ(memory.backward[0].peak_after, 0);
  EXPECT_EQ(memory.peak, 1500 + 70 + 300);
}

TEST(StepWatch, IgnoresABackwardThatIsNotAStep) {
  for (const bool twice : {false, true}) {
    const auto watch = StepWatch::start();
    ASSERT_NE(watch, nullptr);
    watch->hold();
    watch->begin_forward();
    watch->begin_forward();
    watch->end_call();
    watch->begin_backward(twice ? 1 : 0, 0);
    watch->end_backward(twice ? 1 : 0);
    watch->begin_backward(1, 0);
    watch->end_backward(1);
    EXPECT_TRUE(watch->memory().backward.empty());
    watch->stop();
  }
}

TEST(StepWatch, WatchesOneStepAtATime) {
  const auto watch = StepWatch::start();
  EXPECT_EQ(StepWatch::start(), nullptr);
  watch->stop();
  watch->stop();
  const auto next = StepWatch::start();
  ASSERT_NE(next, nullptr);
  next->stop();
}

TEST(StepWatch, MemoryThatIsOlderOrOutlivesTheStepIsFreedCorrectly) {
  auto before = bytes(1000);
  auto watch = StepWatch::start();
  ASSERT_NE(watch, nullptr);
  watch->hold();
  auto stays = bytes(100);
  before.reset();
  watch->end_call();
  EXPECT_EQ(watch->memory().saved, 100);
  // oneDNN asks the registered allocator for memory in this way.
  auto* allocator = c10::GetAllocator(c10::kCPU);
  auto* handed = allocator->raw_allocate(64);
  watch->stop();
  EXPECT_NE(c10::GetAllocator(c10::kCPU), allocator);
  auto* plain = c10::GetAllocator(c10::kCPU)->raw_allocate(64);
  c10::GetAllocator(c10::kCPU)->raw_deallocate(handed);
  allocator->raw_deallocate(plain);
  stays.reset();
  watch = StepWatch::start();
  ASSERT_NE(watch, nullptr);
  watch->end_call();
  EXPECT_EQ(watch->memory().saved, 0);
  watch->stop();
}

TEST(StepWatch, EndsWhenNoBackwardCanFollow) {
  const auto watch = StepWatch::start();
  ASSERT_NE(watch, nullptr);
  watch->hold();
  watch->release();  // in the middle of the method
  watch->hold();
  watch->hold();
  watch->release();
  watch->end_call();
  EXPECT_EQ(StepWatch::start(), nullptr);
  watch->release();
  const auto next = StepWatch::start();
  ASSERT_NE(next, nullptr);
  next->stop();
}

TEST(StepWatch, CountsOnlyItsOwnThread) {
  const auto watch = StepWatch::start();
  ASSERT_NE(watch, nullptr);
  at::Tensor of_another;
  std::thread([&] { of_another = bytes(500); }).join();
  const auto own = bytes(70);
  watch->end_call();
  EXPECT_EQ(watch->memory().saved, 70);
  watch->stop();
}

// A second wrapper: if both forwarded to each other, an allocation would never end.
TEST(StepWatch, IsOffIfAnotherAllocatorWrapsItsOwn) {
  class Wrapper final : public c10::Allocator {
   public:
    explicit Wrapper(c10::Allocator* wrapped) : wrapped_(wrapped) {}
    c10::DataPtr allocate(size_t count) override { return wrapped_->allocate(count); }
    c10::DeleterFnPtr raw_deleter() const override { return wrapped_->raw_deleter(); }
    void copy_data(void* to, const void* from, size_t count) const override {
      default_copy_data(to, from, count);
    }

   private:
    c10::Allocator* wrapped_;
  };
  auto* plain = c10::GetAllocator(c10::kCPU);
  const auto watch = StepWatch::start();
  ASSERT_NE(watch, nullptr);
  Wrapper wrapper(c10::GetAllocator(c10::kCPU));
  c10::SetAllocator(c10::kCPU, &wrapper, 255);
  watch->stop();
  EXPECT_EQ(StepWatch::start(), nullptr);
  EXPECT_EQ(bytes(10).numel(), 10);
  c10::SetAllocator(c10::kCPU, plain, 255);
}

void expect_to_go_on_with_a_later_call(bool is_first_largest) {
  const int owner = 0;
  const int another = 0;
  const auto first = StepWatch::start(/*bytes_before=*/5, &owner);
  ASSERT_NE(first, nullptr);
  first->hold();
  first->begin_forward();
  if (is_first_largest)
    bytes(6000);
  const auto kept_by_first = bytes(1000);
  EXPECT_EQ(StepWatch::take_over(&owner), nullptr);  // the call has not returned
  first->end_call();
  EXPECT_EQ(StepWatch::take_over(&another), nullptr);
  std::thread([&] { EXPECT_EQ(StepWatch::take_over(&owner), nullptr); }).join();

  const auto copies = bytes(7);
  const auto second = StepWatch::take_over(&owner, /*bytes_before=*/7);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(StepWatch::start(), nullptr);
  second->hold();
  second->begin_forward();
  const auto kept_by_second = bytes(500);
  second->end_call();
  const auto of_the_loss = bytes(70);
  second->begin_backward(0, 0);
  bytes(3000);
  second->note_other_calls(1, /*are_seen=*/true, false);
  second->end_backward(0);

  EXPECT_FALSE(first->begin_backward(0, 0));
  first->end_backward(0);
  first->release();
  EXPECT_TRUE(first->memory().backward.empty());
  const auto memory = second->memory();
  EXPECT_EQ(memory.num_others, 1);
  EXPECT_EQ(memory.saved, 7 + 500);
  EXPECT_EQ(memory.at_backward, 7 + 500 + 70);
  EXPECT_EQ(memory.peak, is_first_largest ? 5 + 6000 : 5 + 1000 + 7 + 500 + 70 + 3000);
  ASSERT_EQ(memory.backward.size(), 1U);
  EXPECT_EQ(memory.backward[0].peak, 3000);
  EXPECT_EQ(StepWatch::take_over(&owner), nullptr);  // its backward has begun
}

TEST(StepWatch, GoesOnWithALaterCall) {
  expect_to_go_on_with_a_later_call(/*is_first_largest=*/false);
  expect_to_go_on_with_a_later_call(/*is_first_largest=*/true);
}

// Calls before this one that nobody watched are not part of what was measured.
TEST(StepWatch, CannotCompareAStepWithoutItsFirstCalls) {
  const auto watch = StepWatch::start();
  ASSERT_NE(watch, nullptr);
  run_call(*watch);
  watch->begin_backward(0, 0);
  watch->note_other_calls(1, /*are_seen=*/false, false);
  watch->end_backward(0);
  EXPECT_TRUE(watch->memory().backward.empty());
}

// The calls of other owners between those of one are seen, too.
TEST(StepWatch, KeepsTheNumberOfTheFirstCallThatIsSeen) {
  const int owner = 0;
  const auto first = StepWatch::start(0, &owner, /*first_call=*/3);
  ASSERT_NE(first, nullptr);
  run_call(*first);
  const auto second = StepWatch::take_over(&owner);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->first_call(), 3U);
  run_call(*second);
  second->begin_backward(0, 0);
  second->note_other_calls(/*num_earlier=*/2, /*are_seen=*/true, false);
  second->end_backward(0);
  EXPECT_EQ(second->memory().backward.size(), 1U);
  EXPECT_TRUE(second->memory().has_unclear_loss);
}

// Where one of them is gone, what it held is no part of what the others held either.
TEST(StepWatch, DoesNotTellTheLossWhereOtherCallsAreGone) {
  for (const bool is_gone : {false, true}) {
    const int owner = 0;
    const auto first = StepWatch::start(0, &owner);
    ASSERT_NE(first, nullptr);
    run_call(*first);
    const auto second = StepWatch::take_over(&owner);
    ASSERT_NE(second, nullptr);
    run_call(*second);
    second->begin_backward(0, 0);
    second->note_other_calls(is_gone ? 0 : 1, /*are_seen=*/true, false);
    second->end_backward(0);
    EXPECT_EQ(second->memory().backward.size(), 1U);
    EXPECT_EQ(second->memory().has_unclear_loss, is_gone);
  }
}

}  // namespace
}  // namespace aten_recompute
