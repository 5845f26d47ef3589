// The arena of a step: the first step is recorded, those that follow are served.
#include "runtime/arena/step_arena.h"

#include <ATen/Functions.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "runtime/arena/arena_allocator.h"

namespace aten_recompute {
namespace {

constexpr int64_t kElements = 64 * 1024;  // 256 KiB as float
const int kProgram = 0;                   // any address tells a program from others

// Runs what allocates, as one region of a method would, and returns the step.
struct Step {
  explicit Step(ArenaPlans& plans, bool releases = false)
      : open(ArenaCall::step_for(plans, releases)) {}
  bool is_recorded() const { return open.get() != nullptr && open.get()->is_recorded(); }

  void forward(const std::function<void(AllocationScope&)>& body, size_t run = 0) const {
    AllocationScope scope(open.get(), PassKey::of(run, 0), &kProgram);
    body(scope);
  }

  OpenStep open;
};

at::Tensor make(int64_t elements = kElements) {
  return at::empty({elements});
}

// Returns the step of a call that is over, in which one tensor was allocated and freed.
Step call_that_allocates(ArenaPlans& plans) {
  const ArenaCall call;
  Step step(plans);
  step.forward([](AllocationScope& scope) {
    scope.enter(0);
    make();
  });
  return step;
}

bool is_in_arena(const at::Tensor& tensor) {
  return Arena::containing(tensor.storage().data()) != nullptr;
}

class StepArenaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    install_arena_allocator();
    ArenaPool::instance().clear();
  }
  void TearDown() override { ArenaPool::instance().clear(); }
  std::shared_ptr<ArenaPlans> plans_ = std::make_shared<ArenaPlans>();
};

TEST_F(StepArenaTest, RecordsTheFirstStepAndServesTheSecond) {
  for (int i = 0; i < 3; ++i) {
    const ArenaCall call;
    const Step step(*plans_);
    EXPECT_EQ(step.is_recorded(), i == 0);
    step.forward([&](AllocationScope& scope) {
      scope.enter(0);
      const auto a = make();
      scope.enter(1);
      const auto b = make();
      EXPECT_EQ(is_in_arena(a), i > 0);
      EXPECT_EQ(is_in_arena(b), i > 0);
      a.fill_(1);
      b.fill_(2);
      EXPECT_EQ(a.data_ptr<float>()[0], 1);
    });
  }
  const auto figures = plans_->figures();
  EXPECT_EQ(figures.num_records, 1);
  EXPECT_EQ(figures.arena_bytes, 2 * 4 * kElements);
  EXPECT_EQ(figures.num_unforeseen, 0);
}

TEST_F(StepArenaTest, BlocksThatDoNotMeetShareMemory) {
  for (int i = 0; i < 2; ++i) {
    const ArenaCall call;
    const Step step(*plans_);
    step.forward([&](AllocationScope& scope) {
      for (size_t k = 0; k < 8; ++k) {
        scope.enter(k);
        make();
      }
    });
  }
  EXPECT_EQ(plans_->figures().arena_bytes, 4 * kElements);
}

TEST_F(StepArenaTest, WhatOutlivesTheStepStaysOutside) {
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 3; ++i) {
    const ArenaCall call;
    const Step step(*plans_);
    step.forward([&](AllocationScope& scope) {
      scope.enter(0);
      make();
      scope.enter(1);
      kept.push_back(make());
    });
  }
  EXPECT_FALSE(is_in_arena(kept[1]));
  EXPECT_FALSE(is_in_arena(kept[2]));
  EXPECT_EQ(plans_->figures().arena_bytes, 4 * kElements);
  EXPECT_EQ(plans_->figures().num_unforeseen, 0);
}

// The record saw the block die in its step; in the second step it lives on.
TEST_F(StepArenaTest, ABlockThatLivesLongerThanRecordedIsNotOverwritten) {
  std::vector<at::Tensor> kept;
  for (int i = 0; i < 6; ++i) {
    const ArenaCall call;
    const Step step(*plans_);
    step.forward([&](AllocationScope& scope) {
      scope.enter(0);
      auto a = make().fill_(i);
      if (i > 0)
        kept.push_back(std::move(a));
      a = at::Tensor();
      scope.enter(1);
      make().fill_(-1);
    });
  }
  for (size_t k = 0; k < kept.size(); ++k)
    EXPECT_TRUE(kept[k].eq(static_cast<int64_t>(k + 1)).all().item<bool>()) << k;
  EXPECT_GT(plans_->figures().num_unforeseen, 0);
  EXPECT_GT(plans_->figures().num_records, 1);
}

TEST_F(StepArenaTest, CallsThatAreAliveAtOnceHaveArenasOfTheirOwn) {
  {
    const ArenaCall call;
    const Step step(*plans_);
    step.forward([](AllocationScope& scope) {
      scope.enter(0);
      make();
    });
  }
  std::vector<at::Tensor> alive;
  std::vector<Step> steps;
  for (int i = 0; i < 3; ++i) {
    const ArenaCall call;
    steps.emplace_back(*plans_);
    steps.back().forward([&](AllocationScope& scope) {
      scope.enter(0);
      alive.push_back(make().fill_(i));
    });
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_TRUE(is_in_arena(alive[i]));
    EXPECT_TRUE(alive[i].eq(i).all().item<bool>());
  }
}

TEST_F(StepArenaTest, SmallerBlocksUseThePlacesOfLargerOnesAndLargerOnesGetNewPlaces) {
  const auto run = [&](int64_t elements) {
    const ArenaCall call;
    const Step step(*plans_);
    bool served = false;
    step.forward([&](AllocationScope& scope) {
      scope.enter(0);
      served = is_in_arena(make(elements));
    });
    return served;
  };
  EXPECT_FALSE(run(kElements));
  EXPECT_TRUE(run(kElements));
  EXPECT_TRUE(run(kElements / 2));
  EXPECT_FALSE(run(2 * kElements));
  EXPECT_TRUE(run(2 * kElements));
  EXPECT_TRUE(run(kElements));
  EXPECT_EQ(plans_->figures().num_records, 1);
}

TEST_F(StepArenaTest, AStepThatLeavesOutInstructionsFindsTheOthers) {
  for (int i = 0; i < 2; ++i) {
    const ArenaCall call;
    const Step step(*plans_);
    step.forward([&](AllocationScope& scope) {
      if (i == 0) {
        scope.enter(0);
        make(kElements / 2);
      }
      scope.enter(1);
      EXPECT_EQ(is_in_arena(make()), i > 0);
    });
  }
}

TEST_F(StepArenaTest, AnotherProgramInsideOfAnInstructionCountsWithIt) {
  const int other = 0;
  EXPECT_EQ(AllocationScope::of(&kProgram), nullptr);
  const ArenaCall call;
  const Step step(*plans_);
  step.forward([&](AllocationScope& scope) {
    EXPECT_EQ(AllocationScope::of(&kProgram), &scope);
    EXPECT_EQ(AllocationScope::of(&other), nullptr);
  });
}

TEST_F(StepArenaTest, TheLossLiesInTheArenaToo) {
  for (int i = 0; i < 2; ++i) {
    Step step = call_that_allocates(*plans_);
    EXPECT_EQ(is_in_arena(make()), i > 0);
    step.open.close();
    EXPECT_FALSE(is_in_arena(make()));
  }
}

TEST_F(StepArenaTest, WhileARegionIsCompiledNothingIsServed) {
  for (int i = 0; i < 2; ++i) {
    const ArenaCall call;
    const Step step(*plans_);
    step.forward([](AllocationScope& scope) {
      scope.enter(0);
      const OutsideOfSteps compiling;
      EXPECT_FALSE(is_in_arena(make()));
    });
  }
  EXPECT_EQ(plans_->figures().num_blocks, 0);
}

TEST_F(StepArenaTest, AStepThatIsRecordedDoesNotHoldUpOthers) {
  const ArenaCall call;
  const Step recorded(*plans_);
  EXPECT_TRUE(recorded.is_recorded());
  const ArenaCall second_call;
  const Step second(*plans_);
  EXPECT_EQ(second.open.get(), nullptr);
}

TEST_F(StepArenaTest, AStepThatIsNeverOverDoesNotKeepOthersFromBeingRecorded) {
  const auto never_over = call_that_allocates(*plans_);
  for (int i = 0; i < 3; ++i)
    call_that_allocates(*plans_);
  EXPECT_EQ(plans_->figures().num_records, 2);
  EXPECT_FALSE(call_that_allocates(*plans_).is_recorded());
  EXPECT_EQ(plans_->figures().arena_bytes, 4 * kElements);
}

TEST_F(StepArenaTest, RegionsOfOneCallAreOneStep) {
  for (int i = 0; i < 2; ++i) {
    const ArenaCall call;
    const Step first(*plans_);
    first.forward([](AllocationScope& scope) {
      scope.enter(0);
      make();
    });
    const Step second(*plans_);
    EXPECT_NE(first.open.get(), nullptr);
    EXPECT_EQ(first.open.get(), second.open.get());
  }
  EXPECT_EQ(plans_->figures().num_steps, 2);
}

// A call with little input may be followed by a larger one.
TEST_F(StepArenaTest, AStepThatAllocatesNothingIsRecordedAgainAfterTwoSteps) {
  const auto run = [&](bool allocates) {
    const ArenaCall call;
    const Step step(*plans_);
    step.forward([&](AllocationScope& scope) {
      scope.enter(0);
      if (allocates)
        make();
    });
    return step.is_recorded();
  };
  EXPECT_TRUE(run(false));
  EXPECT_FALSE(run(true));
  EXPECT_TRUE(run(true));
  EXPECT_FALSE(run(true));
  EXPECT_EQ(plans_->figures().arena_bytes, 4 * kElements);
}

TEST_F(StepArenaTest, WithoutACallThereIsNoArena) {
  EXPECT_EQ(ArenaCall::step_for(*plans_, false), nullptr);
}

}  // namespace
}  // namespace aten_recompute
