#include "backend/memory/pending_calls.h"

#include <algorithm>
#include <utility>

namespace aten_recompute {

PendingCalls& PendingCalls::of_process() {
  // Never destroyed, because calls that are static objects may outlive it.
  static auto* instance = new std::shared_ptr<PendingCalls>(std::make_shared<PendingCalls>());
  return **instance;
}

std::unique_ptr<PendingCalls::Call> PendingCalls::add(Kept kept) {
  const auto thread = std::this_thread::get_id();
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto number = num_added_++;
  calls_[thread].of_step.push_back({number, std::move(kept)});
  return std::make_unique<Call>(shared_from_this(), thread, number);
}

void PendingCalls::end(const Call& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const auto found = calls_.find(call.thread_);
  if (found == calls_.end())
    return;
  auto& calls = found->second;
  std::erase_if(calls.of_step, [&](const Entry& each) { return each.number == call.number_; });
  calls.others.erase(call.number_);
  if (calls.of_step.empty() && calls.others.empty())
    calls_.erase(found);
}

PendingCalls::Others PendingCalls::begin_backward(const Call& call) {
  const std::lock_guard<std::mutex> lock(mutex_);
  auto& calls = calls_[call.thread_];
  if (!calls.others.contains(call.number_))
    find_others(calls);
  return calls.others[call.number_];
}

void PendingCalls::find_others(CallsOfThread& calls) {
  double all = 0.0;
  for (const auto& each : calls.of_step)
    all += each.kept.bytes;
  // Each plan leaves room for what the others keep if they make as much again as it does. Of its
  // calls, the smallest has the most beside it.
  std::map<CallerBehavior*, double> most;
  int64_t num_earlier = 0;
  const auto count = static_cast<int64_t>(calls.of_step.size());
  for (const auto& [number, kept] : calls.of_step) {
    const auto like_planned =
        kept.planned_bytes > 0.0 ? (all - kept.bytes) / kept.planned_bytes : 0.0;
    calls.others[number] = {num_earlier, num_earlier + 1 < count, like_planned};
    auto& of_plan = most[kept.caller.get()];
    of_plan = std::max(of_plan, like_planned);
    ++num_earlier;
  }
  for (const auto& [caller, like_planned] : most)
    caller->see_other_calls(like_planned);
  calls.of_step.clear();
}

}  // namespace aten_recompute
