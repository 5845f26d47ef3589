#include "backend/memory/step_watch.h"

#include <ATen/Context.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <utility>

namespace aten_recompute {

namespace {

// The last watch that was started. It may have ended.
struct LastWatch {
  std::mutex mutex;
  std::weak_ptr<StepWatch> watch;
};

LastWatch& last_watch() {
  static LastWatch instance;
  return instance;
}

}  // namespace

std::shared_ptr<StepWatch> StepWatch::start(int64_t bytes_before, const void* owner,
                                            uint64_t first_call) {
  auto memory = StepMemoryWatch::start();
  if (memory == nullptr)
    return nullptr;
  std::shared_ptr<StepWatch> watch(
      new StepWatch(std::move(memory), bytes_before, owner, first_call));
  auto& last = last_watch();
  const std::lock_guard<std::mutex> lock(last.mutex);
  last.watch = watch;
  return watch;
}

std::shared_ptr<StepWatch> StepWatch::take_over(const void* owner, int64_t bytes_before) {
  auto& last = last_watch();
  const std::lock_guard<std::mutex> lock(last.mutex);
  const auto earlier = last.watch.lock();
  auto watch = earlier == nullptr ? nullptr : earlier->hand_over(owner, bytes_before);
  if (watch != nullptr)
    last.watch = watch;
  return watch;
}

std::shared_ptr<StepWatch> StepWatch::hand_over(const void* owner, int64_t bytes_before) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (owner != owner_ || !has_ended_ || has_begun_ || is_handed_over_ || !watch_->is_here())
    return nullptr;
  std::shared_ptr<StepWatch> watch(new StepWatch(watch_, bytes_before_, owner_, first_call_));
  watch->memory_.num_others = memory_.num_others + 1;
  watch->others_bytes_ = watch_->alive_bytes() + bytes_before_ - bytes_before;
  watch->memory_.peak = std::max(memory_.peak, watch_->peak_bytes());
  is_handed_over_ = has_given_up_ = true;
  return watch;
}

StepWatch::StepWatch(std::shared_ptr<StepMemoryWatch> watch, int64_t bytes_before,
                     const void* owner, uint64_t first_call)
    : watch_(std::move(watch)),
      bytes_before_(bytes_before),
      owner_(owner),
      first_call_(first_call) {
  // MemoryWatch takes a profiler's place, so it is used only where there is none.
  if (at::globalContext().hasCUDA() && !at::hasCallbacks())
    on_any_device_ = std::make_unique<MemoryWatch>();
}

bool StepWatch::sees_all_memory() {
  return !at::globalContext().hasCUDA();
}

int64_t StepWatch::alive_in_forward() const {
  return on_any_device_ != nullptr ? on_any_device_->alive_bytes() : watch_->alive_bytes();
}

size_t StepWatch::begin_forward() {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_.at_forward.push_back(alive_in_forward());
  memory_.backward.emplace_back();
  return memory_.at_forward.size() - 1;
}

void StepWatch::end_call() {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_.saved = alive_in_forward();
  memory_.peak = std::max(memory_.peak, watch_->peak_bytes());
  watch_->reset_peak();
  on_any_device_.reset();
  has_ended_ = true;
  if (num_holders_ == 0)
    watch_->stop();
}

// Only a step in which the runs go backward one after the other, each once, can be compared with a
// plan.
void StepWatch::give_up_if(bool condition) {
  has_given_up_ = has_given_up_ || condition;
}

bool StepWatch::begin_backward(size_t run, int64_t freed_before_backward) {
  if (!has_ended_)
    return false;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_handed_over_)
    return false;
  give_up_if(is_running_ || (has_begun_ && run >= run_) || !watch_->is_here());
  if (!has_begun_) {
    memory_.loss_peak = watch_->peak_bytes();
    memory_.at_backward = watch_->alive_bytes();
    memory_.freed_before_backward = freed_before_backward;
  } else {
    memory_.backward[run_].peak_after = watch_->peak_bytes() - memory_.at_backward;
  }
  memory_.peak = std::max(memory_.peak, watch_->peak_bytes());
  const bool is_first = !has_begun_;
  has_begun_ = is_running_ = true;
  run_ = run;
  watch_->reset_peak();
  return is_first;
}

void StepWatch::end_backward(size_t run) {
  if (!has_ended_)
    return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_handed_over_)
    return;
  give_up_if(!is_running_ || run != run_ || !watch_->is_here());
  is_running_ = false;
  memory_.backward[run].has_run = true;
  memory_.backward[run].peak = watch_->peak_bytes() - memory_.at_backward;
  memory_.peak = std::max(memory_.peak, watch_->peak_bytes());
  watch_->reset_peak();
  if (run == 0)
    watch_->stop();  // the caller's own work follows
}

void StepWatch::note_other_calls(int64_t num_earlier, bool are_seen, bool has_later) {
  const std::lock_guard<std::mutex> lock(mutex_);
  give_up_if(!are_seen);
  memory_.has_unclear_loss = has_later || num_earlier != memory_.num_others;
}

void StepWatch::note_retained_graph() {
  const std::lock_guard<std::mutex> lock(mutex_);
  memory_.is_first_of_several = true;
}

void StepWatch::hand_on(bool is_added) {
  const std::lock_guard<std::mutex> lock(mutex_);
  ++(is_added ? memory_.num_added_gradients : memory_.num_new_gradients);
}

void StepWatch::stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (is_handed_over_)
    return;
  give_up_if(is_running_);
  watch_->stop();
}

void StepWatch::release() {
  if (--num_holders_ == 0 && has_ended_)
    stop();
}

StepMemory StepWatch::memory() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto memory = memory_;
  memory.peak += bytes_before_;
  for (auto* bytes : {&memory.saved, &memory.loss_peak, &memory.at_backward})
    *bytes += bytes_before_ - others_bytes_;
  for (auto& bytes : memory.at_forward)
    bytes -= others_bytes_;
  if (has_given_up_ || is_running_)
    memory.backward.clear();
  return memory;
}

}  // namespace aten_recompute
