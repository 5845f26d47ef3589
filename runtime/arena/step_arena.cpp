#include "runtime/arena/step_arena.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <new>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "common/environment.h"
#include "runtime/arena/scratch_memory.h"
#include "runtime/arena/system_memory.h"
#include "runtime/arena/thread_memory.h"

namespace aten_recompute {
namespace {

// Smaller blocks are left to the allocator underneath, which is good at them. Tests set
// RECOMPUTE_ARENA_MIN_BYTES to 1.
int64_t least_block_bytes() {
  constexpr int64_t kDefault = 1024;
  static const auto bytes = environment_number("RECOMPUTE_ARENA_MIN_BYTES").value_or(kDefault);
  return bytes;
}

// The C library serves steps of less than this well: freed memory is used again before it goes back
// to the system. Placing the blocks would take longer than it saves.
int64_t least_arena_bytes() {
  constexpr int64_t kBlocks = 2048;
  return kBlocks * least_block_bytes();
}

// Blocks of steps that are recorded, by address.
class RecordedBlocks {
 public:
  // Never destroyed: tensors in static objects are freed late.
  static RecordedBlocks& instance() {
    static auto* const instance = new RecordedBlocks;
    return *instance;
  }

  // Returns a block from the system; nullptr if that has none.
  void* add(const std::shared_ptr<StepRecord>& record, const BlockKey& key, int64_t bytes) {
    void* const block = is_worth_mapping(bytes) ? map_block(bytes) : allocate(bytes);
    if (block == nullptr)
      return nullptr;
    try {
      const std::lock_guard<std::mutex> lock(mutex_);
      blocks_[block] = {record, record->add(key, bytes), bytes};
    } catch (const std::bad_alloc&) {
      give_back(block, bytes);
      return nullptr;
    }
    return block;
  }

  bool free(const void* block) {
    Recorded recorded;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = blocks_.find(block);
      if (found == blocks_.end())
        return false;
      recorded = std::move(found->second);
      blocks_.erase(found);
    }
    recorded.record->end(recorded.index);
    report_to_profiler(block, -recorded.bytes);
    give_back(const_cast<void*>(block), recorded.bytes);
    return true;
  }

 private:
  static void* allocate(int64_t bytes) {
    constexpr size_t kAlignment = 64;  // what LibTorch's own allocator gives
    void* block = nullptr;
    return posix_memalign(&block, kAlignment, static_cast<size_t>(bytes)) == 0 ? block : nullptr;
  }

  // Large blocks are mapped one by one, so that they go back to the system when they are freed.
  static void give_back(void* block, int64_t bytes) {
    if (is_worth_mapping(bytes))
      unmap_block(block, bytes);
    else
      std::free(block);
  }

  struct Recorded {
    std::shared_ptr<StepRecord> record;
    size_t index = 0;
    int64_t bytes = 0;
  };
  std::mutex mutex_;
  std::unordered_map<const void*, Recorded> blocks_;
};

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

}  // namespace

std::shared_ptr<StepArena> ArenaPlans::begin(bool releases) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A graph may be kept for ever whose backward never runs.
  constexpr size_t kPatience = 2;
  ++figures_.num_steps;
  if (record_ != nullptr && !record_->is_finished()) {
    if (num_waited_++ < kPatience)
      return nullptr;
    record_ = nullptr;
  }
  num_waited_ = 0;
  if (record_ != nullptr) {
    auto blocks = record_->blocks();
    record_ = nullptr;
    is_unlike_record_ = false;
    is_too_small_ = BlockPlan::alive_bytes(blocks) < least_arena_bytes();
    if (!is_too_small_) {
      give_back_free_heap();
      plan_ = std::make_shared<BlockPlan>(std::move(blocks));
    }
  }
  if (is_unlike_record_ && figures_.num_steps >= next_record_)
    plan_ = nullptr;
  // A call with small inputs may be followed by larger ones, so a later step is recorded again.
  if (is_too_small_ && figures_.num_steps < next_record_)
    return nullptr;
  if (plan_ == nullptr) {
    // An arena of earlier steps would take memory beside that of this step.
    ArenaPool::instance().clear();
    record_ = std::make_shared<StepRecord>();
    // Steps that differ each time would otherwise be recorded each time.
    ++figures_.num_records;
    next_record_ = figures_.num_steps + (size_t{1} << std::min<size_t>(figures_.num_records, 16));
    return std::make_shared<StepArena>(shared_from_this(), nullptr, nullptr, record_, releases);
  }
  if (auto larger = plan_->enlarged()) {
    plan_ = std::move(larger);
  } else if (auto smaller = searched_plan()) {
    plan_ = std::move(smaller);
    ArenaPool::instance().clear();  // else the larger arena would be used, all of it resident
  }
  auto arena = ArenaPool::instance().acquire(plan_->arena_bytes());
  if (arena == nullptr)
    return nullptr;
  try {
    return std::make_shared<StepArena>(shared_from_this(), plan_, arena, nullptr, releases);
  } catch (const std::bad_alloc&) {
    ArenaPool::instance().give_back(std::move(arena), releases);
    throw;
  }
}

void ArenaPlans::note_step(double seconds) {
  constexpr double kShareAtFirst = 0.1, kShare = 0.02, kMost = 0.1;  // seconds at most
  constexpr size_t kFirstSteps = 10;
  const std::lock_guard<std::mutex> lock(mutex_);
  seconds_of_step_ = seconds_of_step_ > 0 ? std::min(seconds_of_step_, seconds) : seconds;
  const double share = figures_.num_steps <= kFirstSteps ? kShareAtFirst : kShare;
  seconds_to_search_ = std::min(kMost, seconds_to_search_ + share * seconds_of_step_);
}

std::shared_ptr<BlockPlan> ArenaPlans::searched_plan() {
  if (seconds_to_search_ <= 0)
    return nullptr;
  const auto begin = Clock::now();
  auto plan = plan_->improved(seconds_to_search_);
  seconds_to_search_ -= Seconds(Clock::now() - begin).count();
  return plan;
}

ArenaFigures ArenaPlans::figures() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto figures = figures_;
  if (plan_ != nullptr) {
    figures.arena_bytes = plan_->arena_bytes();
    figures.alive_bytes = plan_->alive_bytes();
    figures.num_blocks = plan_->num_blocks();
  }
  return figures;
}

std::shared_ptr<const BlockPlan> ArenaPlans::plan() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return plan_;
}

void ArenaPlans::note_unforeseen(int64_t bytes, bool is_larger) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++figures_.num_unforeseen;
  figures_.unforeseen_bytes += bytes;
  is_unlike_record_ = is_unlike_record_ || !is_larger;
}

StepArena::~StepArena() {
  end();
}

void* StepArena::allocate(const BlockKey& key, int64_t bytes) {
  // Nobody knows how much a caller does between the call and its backward.
  constexpr size_t kMostBetween = 4096;
  if (is_over_ || (key.pass.is_between() && key.ordinal >= kMostBetween))
    return nullptr;
  if (record_ != nullptr)
    return RecordedBlocks::instance().add(record_, key, bytes);
  const auto* place = plan_->find(key);
  if (place == nullptr) {
    if (!key.pass.is_between())
      plans_->note_unforeseen(bytes, /*is_larger=*/false);
    return nullptr;
  }
  if (place->offset < 0)
    return nullptr;
  if (bytes > place->bytes) {
    plan_->note_larger(*place, bytes);
    plans_->note_unforeseen(bytes, /*is_larger=*/true);
    return nullptr;
  }
  void* const block = arena_->take(place->offset, bytes);
  if (block == nullptr)
    plans_->note_unforeseen(bytes, /*is_larger=*/false);
  return block;
}

void StepArena::close() {
  if (--num_open_ == 0)
    end();
}

void StepArena::end() {
  if (is_over_.exchange(true))
    return;
  if (record_ != nullptr)
    record_->finish();
  if (arena_ == nullptr)
    return;
  ArenaPool::instance().give_back(arena_, releases_);
  plans_->note_step(Seconds(Clock::now() - begin_).count());
}

ArenaCall::ArenaCall() : outer_(ThreadMemory::current().call) {
  auto& thread = ThreadMemory::current();
  thread.call = this;
  thread.forget_step();
}

ArenaCall::~ArenaCall() {
  ThreadMemory::current().call = outer_;
}

std::shared_ptr<StepArena> ArenaCall::step_for(ArenaPlans& plans, bool releases) {
  auto& thread = ThreadMemory::current();
  auto* const call = thread.call;
  if (call == nullptr || arenas_are_off())
    return nullptr;
  if (!call->has_begun_) {
    call->has_begun_ = true;
    call->step_ = OpenStep(plans.begin(releases));
    thread.step = call->step_.shared();
  }
  return call->step_.shared();
}

AllocationScope::AllocationScope(StepArena* step, PassKey pass, const void* program)
    : step_(step), program_(program), outer_(ThreadMemory::current().scope) {
  key_.pass = pass;
  if (step_ != nullptr)
    ThreadMemory::current().scope = this;
}

AllocationScope::~AllocationScope() {
  if (step_ == nullptr)
    return;
  auto& thread = ThreadMemory::current();
  thread.scope = outer_;
  if (thread.step.get() == step_) {
    ++thread.key.instruction;
    thread.key.ordinal = 0;
  }
}

AllocationScope* AllocationScope::of(const void* program) {
  auto* const scope = ThreadMemory::current().scope;
  return scope != nullptr && scope->program_ == program ? scope : nullptr;
}

void* AllocationScope::allocate(size_t bytes) {
  const auto size = static_cast<int64_t>(bytes);
  auto& thread = ThreadMemory::current();
  auto* const scope = thread.scope;
  if ((scope == nullptr && thread.step == nullptr) || thread.num_outside > 0 ||
      size < least_block_bytes())
    return nullptr;
  if (scope == nullptr && thread.step->is_over()) {
    thread.forget_step();
    return nullptr;
  }
  auto& key = scope != nullptr ? scope->key_ : thread.key;
  auto* const step = scope != nullptr ? scope->step_ : thread.step.get();
  void* const block = step->allocate(key, size);
  ++key.ordinal;
  if (block != nullptr)
    report_to_profiler(block, size);
  return block;
}

OutsideOfSteps::OutsideOfSteps() {
  ++ThreadMemory::current().num_outside;
}

OutsideOfSteps::~OutsideOfSteps() {
  --ThreadMemory::current().num_outside;
}

bool free_block(const void* block) {
  if (const auto arena = Arena::containing(block)) {
    report_to_profiler(block, -arena->give_back(block));
    return true;
  }
  return RecordedBlocks::instance().free(block) || ScratchMemory::free(block);
}

}  // namespace aten_recompute
